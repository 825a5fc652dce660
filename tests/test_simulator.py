"""The simulator: its translator, what its kernels can do, and what it catches."""

import os
import platform
import re
import resource
import subprocess

import pytest

import translate as translator
from suite import ROOT, scons

pytestmark = pytest.mark.full

SCHEDULES = ["forward", "reverse", "random:1"]


def translate(text):
    first, _, rest = translator.translate(text, "f.cu").partition("\n")
    assert first == '#line 1 "f.cu"'
    assert rest.count("\n") == text.count("\n"), "a line moved"
    return rest


# --- Its headers ----------------------------------------------------------------------------------

HEADERS = sorted(path.relative_to(ROOT) for path in (ROOT / "simulator").rglob("*")
                 if path.suffix in (".h", ".hpp", ".cuh")
                 and path.name != "for_clangd.cuh")  # which clang alone reads, as CUDA


@pytest.mark.parametrize("header", HEADERS, ids=str)
def test_a_header_compiles_alone(header):
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-Wall", "-Wextra", "-Werror",
               "-fsyntax-only", "-x", "c++", "-"]
    done = subprocess.run(command, input=f'#include "{header}"\n', capture_output=True, text=True,
                          cwd=ROOT)
    assert done.returncode == 0, done.stderr


# --- The translator -------------------------------------------------------------------------------


@pytest.mark.parametrize("launch, kernel, configuration, arguments", [
    ("k<<<g, b>>>(x)", "k", "g, b", "x"),
    ("ns::k<Tile<128, 64>, (a > b)><<<grid, dim3(32, 32), bytes, stream>>>(x, f(y))",
     "ns::k<Tile<128, 64>, (a > b)>", "grid, dim3(32, 32), bytes, stream", "x, f(y)"),
    ("k<<<f<A<B<int>>>(x), 32>>>(y)", "k", "f<A<B<int>>>(x), 32", "y"),
    ("k<<<a<b, c>>>(d)", "k", "a<b, c", "d"),
    ("k<<<a < b ? 1 : 2, c>>>(d > e)", "k", "a < b ? 1 : 2, c", "d > e"),
    ("k<a << 2><<<1, 2>>>()", "k<a << 2>", "1, 2", ""),
    ("k<(a >> 2)><<<1, x >> 2>>>()", "k<(a >> 2)>", "1, x >> 2", ""),
    ("k<a < b><<<1, 2>>>()", "k<a < b>", "1, 2", ""),
    ("::k<<<1, 2>>>()", "::k", "1, 2", ""),
    ("A<B>::k<<<1, 2>>>()", "A<B>::k", "1, 2", ""),
    ("(p ? one : two)<<<1, 2>>>()", "(p ? one : two)", "1, 2", ""),
    ("table[i < 3 ? 0 : 1].kernel<<<1, 2>>>()", "table[i < 3 ? 0 : 1].kernel", "1, 2", ""),
    ("get(x)<<<1, 2>>>()", "get(x)", "1, 2", ""),
    ("x.template k<T><<<1, 2>>>()", "x.template k<T>", "1, 2", ""),
    ("k<<<n, {8, 8}>>>([=](int i) { return i << 1; })", "k", "n, {8, 8}",
     "[=](int i) { return i << 1; }"),
    ("k<<<\n  1,  // >>>(\n  2\n>>>(a,\n  b)", "k", "\n  1,  // >>>(\n  2\n", "a,\n  b"),
    ('k<T><<<1, ">>>("[0]>>>(\')\')', "k<T>", '1, ">>>("[0]', "')'"),
])
@pytest.mark.parametrize("before", ["", "return ", "if (x) ", "else ", "f = [&] { ", "{ a < b; ",
                                    "#define RUN(n) ", "int* p = nullptr; ", "x = 1'000'000; "])
def test_launch(before, launch, kernel, configuration, arguments):
    expected = f"SIMULATOR_LAUNCH(({kernel}), ({configuration}), ({arguments}))"
    assert translate(before + launch + ";") == before + expected + ";"


@pytest.mark.parametrize("text", [
    'auto s = "k<<<1, 2>>>(x)";',
    'auto s = R"x(k<<<1, 2>>>(x))" )x";',
    "// k<<<1, 2>>>(x)\n/* k<<<\n1>>>() */",
    "// goes on \\\nk<<<1, 2>>>(x)",
    "char c = '<', d = '\\'', e = '\"';",
    "std::vector<std::pair<int, std::array<int, 3>>> v; x <<= 3; y = x << 2 >> 1;",
    "std::map<int, std::vector<std::pair<int, int>>> v(x);",
    'extern int a[]; extern "C" { int f(); }',
    "extern alignas(16) float a[4];",
    "#define CLUSTER(blocks) __cluster_dims__(blocks)",
    "__global__ void __cluster_dims__(2) kernel(int);",
])
def test_text_that_stays(text):
    assert translate(text) == text


@pytest.mark.parametrize("text, expected", [
    ("extern __shared__ float t[];", "float *const t = ::simulator::dynamic_shared();"),
    ("extern __shared__ float t[][32];", "float (*const t)[32] = ::simulator::dynamic_shared();"),
    ("extern __shared__ __align__(16) unsigned char t[];",
     "unsigned char *const t = ::simulator::dynamic_shared(16);"),
    ("alignas(128) extern __shared__ T t[];", "T *const t = ::simulator::dynamic_shared(128);"),
    ("extern __shared__\nalignas(16)\nhalf t[];",
     "\n\nhalf *const t = ::simulator::dynamic_shared(16);"),
    ("__shared__ float t[4][8];",
     "struct simulator_shared_t { float t[4][8]; };"
     " auto& t = ::simulator::static_shared<simulator_shared_t>().t;"),
    ("alignas(32) __shared__ A<2, B<3>> t, u[sizeof(int)];",
     "struct simulator_shared_t { alignas(32) A<2, B<3>> t, u[sizeof(int)]; };"
     " auto& t = ::simulator::static_shared<simulator_shared_t>().t;"
     " auto& u = ::simulator::static_shared<simulator_shared_t>().u;"),
    ("__shared__\nint t;",
     "struct simulator_shared_t { \nint t; };"
     " auto& t = ::simulator::static_shared<simulator_shared_t>().t;"),
])
def test_shared_memory(text, expected):
    translated, named = re.subn(r' ::simulator::name_shared\((\w+), "\1"\);', "", translate(text))
    assert re.sub(r" +", " ", translated).strip(" ") == expected
    assert named == max(1, expected.count("auto& "))


@pytest.mark.parametrize("before", ["__global__ void __cluster_dims__(kSize) k(int (&a)[2]) ",
                                    "__global__ void __launch_bounds__(f(1), 1)\n"
                                    "HOPPER_CLUSTER(kSize) k(int a, int b) "])
def test_a_kernel_in_clusters_begins_by_saying_so(before):
    assert translate(before + "{ f(); }") == before + "{ ::simulator::cluster_dims(kSize); f(); }"


def test_a_tile_kernel_begins_by_saying_so():
    before = "template <int n>\n[[cutile::hint(0, x = 8)]] __tile_global__ void k(int a = f({})) "
    assert translate(before + "{ f(); }") == before + "{ ::simulator::tile_block(); f(); }"
    assert translate("k<4><<<blocks>>>(x);") == "SIMULATOR_LAUNCH((k<4>), (blocks), (x));"


@pytest.mark.parametrize("text, line", [
    ("\nk<<<1, 2;", 2),
    ("<<<1>>>(x)", 1),
    ("\n\nk<<<1>>>(x", 3),
    ("extern __shared__ float t;", 1),
    ("\n__shared__ float t = 1;", 2),
])
def test_text_that_is_wrong(text, line):
    with pytest.raises(translator.TranslationError, match=f"^f.cu:{line}: "):
        translate(text)


# --- Kernels --------------------------------------------------------------------------------------


def build(*options):
    """Builds tests/simulator/ and returns the folder of the programs."""
    built = scons("cpu/tests", *options)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "warning" not in built.stdout + built.stderr
    kind = "release-sanitize" if "sanitize=1" in options else "release"
    return ROOT / "build/cpu" / kind / "tests"


@pytest.fixture(scope="module")
def normal():
    return build()


@pytest.fixture(scope="module")
def sanitized():
    return build("sanitize=1")


def run(program, *arguments, schedule="forward", **options):
    env = {**os.environ, "DEMO_SCHEDULE": schedule, **options.pop("env", {})}
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60,
                          env=env, **options)


def line_of(text, file="misuse.cu"):
    """The line that `text` stands in."""
    lines = (ROOT / "tests/simulator" / file).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_language(normal, schedule):
    done = run(normal / "language", schedule=schedule)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" 0 failed\n")


def test_language_sanitized(sanitized):
    done = run(sanitized / "language", schedule="random:3")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("schedule", ["forward", "reverse", "random:7"])
def test_hoppers_instructions(normal, schedule):
    """On a GPU test_device.py runs them."""
    done = run(normal / "test_ptx_hopper", "--gtest_brief=1", schedule=schedule)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[  PASSED  ]" in done.stdout


@pytest.mark.parametrize("name", ["test_measure", "test_reference", "test_tile"])
def test_others(normal, name):
    """On a GPU test_device.py runs them."""
    done = run(normal / name, "--gtest_brief=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[  PASSED  ]" in done.stdout


BARRIER = r"waits at __syncthreads\(\) in tests/simulator/misuse.cu:\d+ for thread "
CAUGHT = {
    "divergent_barrier": BARRIER + r"\(16,0,0\), which has left the kernel",
    "two_barriers": BARRIER + r"\(16,0,0\), which waits at __syncthreads\(\) in .*:\d+",
    "early_exit": BARRIER + r"\(31,0,0\), which has left the kernel",
    "divergent_shuffle": r"waits at __shfl_xor_sync\(\) in .* for thread \(16,0,0\), which waits "
                         r"at __syncthreads\(\)",
    "divergent_wmma": r"waits at load_matrix_sync\(\) in .* for thread \(31,0,0\), which has left",
    "misaligned_wmma": r"load_matrix_sync\(\) in .* needs a pointer aligned to 32 bytes",
    "divergent_ldmatrix": r"waits at ldmatrix_x4\(\) in .* for thread \(31,0,0\), which has left",
    "misaligned_ldmatrix": r"ldmatrix_x4\(\) in .*: lane 1 names a row that is not aligned to 16",
    "read_far_past": r"read of address 0x\w+, 11868 bytes past the end of buffer 1 \(132 bytes, "
                     r"allocated in tests/simulator/misuse.cu:\d+\)",
    "write_past": r"write to address 0x\w+, 0 bytes past the end of buffer 2",
    "read_null": r"(read of address 0x4, in no buffer of device memory"
                 r"|\n.* applying non-zero offset 4 to null pointer)",  # as clang's sanitizer says
    "dynamic_overrun": r"write to address 0x\w+, 512 bytes into the block's dynamic shared memory "
                       r"of 512 bytes",
    "freed": r"0 bytes into buffer 1 \(132 bytes, .*, freed since\)",
    "overflow_stack": r"which its local variables overflowed its stack to reach",
}


@pytest.mark.parametrize("case", CAUGHT)
@pytest.mark.parametrize("kind", ["normal", "sanitized"])
def test_misuse_is_caught(request, kind, case):
    done = run(request.getfixturevalue(kind) / "misuse", case)
    assert done.returncode == 3
    kernel = {"freed": "read_at", "read_null": "read_at", "read_far_past": "read_at",
              "write_past": "write_at"}.get(case, case)
    assert re.search(rf"^misuse: kernel {kernel}, block \(\d,0,0\), thread \(\d+,\d,0\):.*"
                     rf"{CAUGHT[case]}", done.stderr, re.M), done.stderr
    if kind == "normal":
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", ["divergent_barrier", "two_barriers", "early_exit",
                                  "divergent_shuffle", "divergent_wmma"])
def test_no_schedule_hangs(normal, case, schedule):
    done = run(normal / "misuse", case, schedule=schedule)
    assert done.returncode == 3 and "waits at" in done.stderr


def test_barrier_lines(normal):
    first = line_of("two_barriers() {") + 2
    error = run(normal / "misuse", "two_barriers").stderr
    assert f"misuse.cu:{first} for thread" in error and f"misuse.cu:{first + 2}\n" in error


def test_host_code_and_device_memory(normal):
    done = run(normal / "misuse", "host_read")
    assert done.returncode == 3
    assert re.match(r"misuse: host code: read of address 0x\w+, 12 bytes into buffer 2 .*; "
                    r"the host has to cudaMemcpy it\n$", done.stderr)
    done = run(normal / "misuse", "host_pointer")
    assert done.returncode == 3
    assert re.match(r"misuse: write_at, launched in .*misuse.cu:\d+: argument 1 points to host "
                    r"memory\n$", done.stderr)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere 5 / 0 is a number")
def test_division_by_zero(normal):
    done = run(normal / "misuse", "divide")
    assert done.returncode == 3 and done.stderr.endswith(": integer division by zero\n")


def test_what_is_not_modelled(normal):
    done = run(normal / "misuse", "nested")
    assert done.returncode == 77
    assert "needs launches from a kernel, which the simulator does not have" in done.stderr


@pytest.mark.parametrize("case, report, place", [
    ("read_one_past", "READ of size 4", r"0 bytes past the end of buffer 1 \(132 bytes, "),
    ("read_one_before", "READ of size 4", r"4 bytes before buffer 1 \(132 bytes, "),
    ("read_byte_past", "READ of size 1", r"0 bytes past the end of buffer 3 \(67 bytes, "),
    ("read_byte_before", "READ of size 1", r"1 bytes before buffer 3 \(67 bytes, "),
    ("write_byte_past", "WRITE of size 1", r"0 bytes past the end of buffer 3 \(67 bytes, "),
    ("write_byte_before", "WRITE of size 1", r"1 bytes before buffer 3 \(67 bytes, "),
    ("static_overrun", "index 8 out of bounds for type 'float ?", ""),
    ("divide", "division by zero", ""),
])
def test_sanitizers_catch_single_elements(sanitized, case, report, place):
    done = run(sanitized / "misuse", case)
    assert done.returncode == 3
    thread = r"^misuse: kernel \w+, block \(0,0,0\), thread \(\d,0,0\):"
    assert re.search(rf"{thread}.*{place}", done.stderr, re.M), done.stderr
    assert re.search(report, done.stderr)
    assert "tests/simulator/misuse.cu:" in done.stderr


@pytest.mark.parametrize("case, place", [("write_byte_past", "0 bytes past the end of"),
                                         ("write_byte_before", "1 bytes before")])
def test_a_byte_written_beside_a_buffer(normal, case, place):
    done = run(normal / "misuse", case)
    assert done.returncode == 3
    launch = line_of(f'"{case}"')
    assert re.fullmatch(rf"misuse: write_byte, launched in tests/simulator/misuse.cu:{launch}: "
                        rf"wrote to address 0x\w+, {place} buffer 3 \(67 bytes, allocated in "
                        r"tests/simulator/misuse.cu:\d+\)\n", done.stderr), done.stderr


@pytest.mark.parametrize("case", ["show_one_past", "show_one_before"])
def test_what_is_read_beside_a_buffer_is_nan(normal, case):
    assert re.match("-?nan\n", run(normal / "misuse", case).stdout)


@pytest.mark.parametrize("case, access", [
    ("one_past", "thread (30,0,0): read of #, 0 bytes past the end of"),
    ("one_past_in_part", "thread (33,0,0): write to #, 0 bytes past the end of"),
    ("one_before", "thread (0,0,0): read of #, 1 bytes before")])
def test_accesses_beside_a_buffer_when_counted(normal, case, access):
    if not (normal / "counts").exists():
        pytest.skip("counting takes g++")
    done = run(normal / "counts", case, env={"DEMO_COUNT": "1"})
    assert done.returncode == 3
    message = re.escape(access).replace("\\#", r"address 0x\w+")
    assert re.fullmatch(rf"counts: kernel strided<.+>, block \(0,0,0\), {message} buffer 3 "
                        r"\(67 bytes, allocated in tests/simulator/counts.cu:\d+\)\n",
                        done.stderr), done.stderr


@pytest.mark.parametrize("kind", ["normal", "sanitized"])
def test_kernels_only_read_what_is_read_only(request, kind):
    program = request.getfixturevalue(kind) / "misuse"
    done = run(program, "write_input")
    assert (done.returncode, done.stdout) == (3, "3.000000\n")
    assert re.fullmatch(r"misuse: kernel write_at, block \(0,0,0\), thread \(0,0,0\): write to "
                        r"address 0x\w+, 12 bytes into buffer 2 \(1024 bytes, allocated in .*\), "
                        r"which kernels may only read\n", done.stderr), done.stderr
    assert run(program, "write_output").stdout == "1.000000\ncudaSuccess\n"


def run_limited(program, case, megabytes):
    """As under ulimit -d."""
    limit = megabytes << 20
    return run(program, case, env={"OPENBLAS_NUM_THREADS": "1"},  # more of them wait for memory
               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)))


@pytest.mark.parametrize("case, megabytes", [
    ("host_takes_memory", 150), ("right_patch", 24), ("right_patch", 60), ("right_patch", 1000)])
def test_too_little_memory(normal, case, megabytes):
    done = run_limited(normal / "misuse", case, megabytes)
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(r"misuse: (too little memory: (mmap|mprotect) of \d+ bytes|no thread): .+; "
                        r"ulimit .+\n", done.stderr), done.stderr


def test_a_buffer_that_is_too_large(normal):
    done = run_limited(normal / "misuse", "too_large", 150)
    assert done.stdout.startswith("cudaErrorMemoryAllocation, ")


def wrong_elements(program, case, schedule):
    done = run(program, case, schedule=schedule)
    assert done.returncode == 0, done.stderr
    return int(re.match(r"(\d+) of \d+ wrong", done.stdout).group(1))


@pytest.mark.parametrize("case", ["missing_barrier", "missing_syncwarp", "early_copy"])
def test_a_missing_barrier_shows_in_some_schedule(normal, case):
    assert any(wrong_elements(normal / "misuse", case, schedule) for schedule in SCHEDULES)


@pytest.mark.parametrize("case", ["missing_wait", "missing_commit", "wmma_ownership",
                                  "no_sync_before_load", "no_sync_after_load",
                                  "no_sync_before_store", "no_sync_after_store"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_fails_in_every_schedule(normal, case, schedule):
    assert wrong_elements(normal / "misuse", case, schedule) > 0


@pytest.mark.parametrize("case", ["right_pipeline", "right_patch"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_same_done_right(normal, case, schedule):
    assert wrong_elements(normal / "misuse", case, schedule) == 0


# --- Faults of kernels for Hopper -----------------------------------------------------------------

# What says so in every schedule: the message, with the line, by the comment on it.
HOPPERS_FAULTS = {
    "no_product_wait": "leaves the kernel, and wgmma_mma_async() in [the product] may still run: "
                       "nobody waited for it",
    "no_store_wait": "leaves the kernel, and tma_store() in [the first store] may still read its "
                     "shared memory: nobody waited for it",
    "no_product_commit": "leaves the kernel, and wgmma_mma_async() in [the product] may still run: "
                         "its group was not committed",
    "no_store_commit": "leaves the kernel, and tma_store() in [the first store] may still read its "
                       "shared memory: its group was not committed",
    "producer_parity": "waits at mbarrier_wait() in [for the producer]: phase 0 (parity 0) of the "
                       "mbarrier at byte # of shared memory has 0 of 4 arrivals",
    "too_few_bytes": "leaves the kernel, and the mbarrier at byte # of shared memory has got 16384 "
                     "bytes more than mbarrier_arrive_expect_tx() in [announces a stage] announced",
    "too_many_bytes": "waits at mbarrier_wait() in [for the consumer] for ever: phase 0 (parity 0) "
                      "of the mbarrier at byte # of shared memory has 1 of 1 arrivals and lacks "
                      "8192 bytes; arrived: thread (128,0,0) of block (0,0,0)",
    "no_fence": ": byte # of shared memory was written by a thread, without a fence_proxy_async()",
    "odd_column": "tma_load() in [A's tile]: column 1 is 2 bytes into a row, no multiple of 16",
    # Deadlocks
    "nobody_frees": "[for the producer]: phase 0 (parity 0) of the mbarrier at byte # of shared "
                    "memory has 3 of 4 arrivals; arrived: thread ",
    "no_copy": "waits at mbarrier_wait() in [for the consumer] for ever: phase 1 (parity 1) of the "
               "mbarrier at byte # of shared memory has 1 of 1 arrivals and lacks 8192 bytes",
    "barrier_of_one": "waits at barrier_sync_warpgroup() in [C is complete] for ever: 96 of 128 "
                      "threads have come",
    "pair_not_sent": "waits at mbarrier_wait() in [for the pair] for ever: phase 0 (parity 0) of "
                     "the mbarrier at byte 0 of shared memory has 1 of 1 arrivals and lacks 8 "
                     "bytes",
}
# What says something else in each schedule, or computes something wrong.
HOPPERS_FAULTS_BY_SCHEDULE = {
    ("no_full_wait", "forward"): "waits at mbarrier_wait() in [for the producer] for ever: ",
    ("no_full_wait", "reverse"): "[announces a stage]: the mbarrier at byte # of shared memory has "
                                 "all 1 arrivals of its phase 0 already",
    ("no_full_wait", "random:1"): 7958,
    ("early_free", "forward"): "waits at mbarrier_wait() in [for the consumer] for ever: phase 1",
    ("early_free", "reverse"): 2048,
    ("consumer_parity", "forward"): "waits at mbarrier_wait() in [for the consumer] for ever: "
                                    "phase 0 (parity 0)",
    ("consumer_parity", "reverse"): "[announces a stage]: the mbarrier at byte # of shared memory "
                                    "has all 1 arrivals of its phase 0 already",
    ("fragment_changes", "reverse"): "wgmma_mma_async() in [of registers]: A's registers changed "
                                     "before it was waited for",
    ("no_fence", "forward"): "tma_store() in [the first store]: byte ",
    ("leaves_early", "forward"): "waits at mbarrier_wait() in [for the next block] for ever: ",
    ("leaves_early", "reverse"): "st_async() in [sends the pair]: block (1,0,0) has left the "
                                 "kernel, and with it its shared memory",
    ("leaves_before_arrival", "reverse"): "mbarrier_arrive_cluster() in [it has been read]: block "
                                          "(1,0,0) has left the kernel",
    ("pair_not_expected", "forward"): "the mbarrier at byte 0 of shared memory has got 8 bytes more"
                                      " than mbarrier_arrive_expect_tx() in [announces the pair]",
    ("pair_not_expected", "reverse"): "st_async() in [sends the pair]: block (1,0,0) has left",
}
FAULTS_AND_SCHEDULES = [
    *((case, schedule, message) for case, message in HOPPERS_FAULTS.items()
      for schedule in SCHEDULES),
    *((*key, outcome) for key, outcome in HOPPERS_FAULTS_BY_SCHEDULE.items()),
    *((case, schedule, None) for case in ("stride", "panel_stride", "swizzle", "store_swizzle")
      for schedule in SCHEDULES)]


@pytest.mark.parametrize("case, schedule, outcome", FAULTS_AND_SCHEDULES)
def test_a_fault_of_a_kernel_for_hopper_is_found(normal, case, schedule, outcome):
    if not isinstance(outcome, str):  # how many elements are wrong, if that is known
        wrong = wrong_elements(normal / "hopper_faults", case, schedule)
        assert wrong == outcome if outcome else wrong > 0
        return
    done = run(normal / "hopper_faults", case, schedule=schedule)
    assert done.returncode == 3 and done.stdout == ""
    kernel = "exchange" if re.match("leaves|pair", case) else "product"
    text = re.sub(r"\[(.+?)\]", lambda comment: "tests/simulator/hopper_faults.cu:"
                  f"{line_of('// ' + comment[1], 'hopper_faults.cu')}", outcome)
    message = r"\d+ of (dynamic )?".join(re.escape(part) for part in text.split("# of "))
    assert re.fullmatch(rf"hopper_faults: kernel {kernel}<kFault>, block \([01],0,0\), "
                        rf"thread \(\d+,0,0\): .*{message}.*\n", done.stderr), done.stderr


def test_a_write_into_a_block_that_left(normal):
    done = run(normal / "hopper_faults", "write_late", schedule="reverse")
    assert done.returncode == 3
    assert re.fullmatch(r"hopper_faults: kernel write_late, block \(0,0,0\), thread \(31,0,0\): "
                        r"write to address 0x\w+, in shared memory of block \(1,0,0\), which has "
                        r"left the kernel\n", done.stderr), done.stderr


EDGE = "of 32 x 16 elements reaches over the edge of the tensor of 128 x 40"
OUTSIDE = "of 32 x 16 elements lies outside of the tensor of 128 x 40"
TILES_FAULTS = {
    "alignment": "assume_aligned() in [the alignment]: # is not aligned to 16 bytes, but 4 bytes "
                 "beyond",
    "divisor": "assume_divisible() in [the divisor]: 39 is no multiple of 8",
    "unmasked_load": f"load() in [over the edge]: tile (0,2) {EDGE}",
    "unmasked_store": f"store() in [beyond the edge]: tile (0,2) {EDGE}",
    "negative_index": f"load_masked() in [a tile]: tile (0,-1) {OUTSIDE}",
    "one_tile_too_many": f"load_masked() in [a tile]: tile (0,3) {OUTSIDE}",
    "extent": "write to address #, # bytes past the end of buffer 2 (20480 bytes, allocated in "
              "[for y])",
    "narrow_extent": "an extent of 5000000000 does not fit a tensor's indices of 32 bits",
    "step": "irange() with a step of -1: it has to be positive",
    "threads": "a tile kernel, launched in blocks of (32,1,1) threads: it takes <<<blocks>>> alone",
}


@pytest.mark.parametrize("case", TILES_FAULTS)
def test_a_fault_of_a_tile_kernel_is_found(normal, case):
    done = run(normal / "tile_faults", case)
    assert done.returncode == 3 and done.stdout == ""
    text = re.sub(r"\[(.+?)\]", lambda comment: "tests/simulator/tile_faults.cu:"
                  f"{line_of('// ' + comment[1], 'tile_faults.cu')}", TILES_FAULTS[case])
    message = r"\w+".join(re.escape(part) for part in text.split("#"))
    message = message.replace(r"\(0,", r"\(\d,")  # blocks run in any order
    assert re.fullmatch(r"tile_faults: kernel twice, block \(\d,0,0\), thread \(0,0,0\): "
                        rf"{message}\n", done.stderr), done.stderr


def test_a_tile_that_nothing_was_assigned_to(normal):
    assert wrong_elements(normal / "tile_faults", "uninitialized", "forward") == 5120


@pytest.mark.parametrize("kind", ["normal", "sanitized"])
def test_the_tile_kernel_without_a_fault(request, kind):
    program = request.getfixturevalue(kind) / "tile_faults"
    assert wrong_elements(program, "none", "random:3") == 0


@pytest.mark.parametrize("schedule", ["forward", "reverse", "random:7", "alone",
                                      *(f"random:{seed}" for seed in range(1, 6))])
@pytest.mark.parametrize("case", ["none", "cluster_none"])
def test_the_kernels_without_a_fault(normal, case, schedule):
    assert wrong_elements(normal / "hopper_faults", case, schedule) == 0


@pytest.mark.parametrize("case", ["none", "cluster_none"])
def test_the_kernels_without_a_fault_sanitized(sanitized, case):
    assert wrong_elements(sanitized / "hopper_faults", case, "random:3") == 0


@pytest.mark.parametrize("value", ["backward", "random", "random:", "random:x", "random:1x",
                                   "random:-1", f"random:{2**64}"])
def test_bad_schedule(normal, value):
    done = run(normal / "language", schedule=value)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("language: DEMO_SCHEDULE takes forward, reverse, random:SEED or alone, "
                           f"not '{value}'\n")


@pytest.mark.parametrize("value", ["", "alone", f"random:{2**64 - 1}"])
def test_allowed_schedule(normal, value):
    assert run(normal / "language", schedule=value).returncode == 0
