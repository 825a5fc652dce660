"""profile.sh: tables and timeline from recorded records (tests/data/, of an H200), names in them,
the trace, what is wrong with records and command lines; and, on a GPU, the whole of it."""

import glob
import json
import re
import subprocess

import pytest

import library_names
from fakes import copy_folders, script
from shared import kernel_names
from suite import GPU, NO_GPU, ROOT, SKIPPED, USAGE, assert_one_line, run

GATING = ROOT / "tests/data/profile_gating.txt"  # 5_gating_unfused 4096: verified, timed 5 times
STREAMS = ROOT / "tests/data/profile_streams.txt"  # a program without ranges, with two streams
LIBRARY = ROOT / "build/libprofile_injection.so"
GEMM = "nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT"  # as the library names its kernel
BIAS = ("gating_unfused::add_bias(__half const*, __half const*, __half*, unsigned long, unsigned "
        "long)")


def report(*arguments):
    return script("profile/profile_report.py", *arguments)


def profile(*arguments, env=None, cwd=None):
    return script("profile.sh", *arguments, env=env, cwd=cwd)


def sections(text):
    """The report's parts by the line that each begins with."""
    return {part.split("\n")[0]: part.split("\n")[1:] for part in text.strip().split("\n\n")}


def section(text, title):
    return next(lines for head, lines in sections(text).items() if head.startswith(title))


def rows(lines):
    """A table's rows by name: the figures as text. A long name has a line of its own."""
    found, name = {}, ""
    for text in lines[1:]:
        cells = re.split(r"  +", text.strip())
        if len(cells) == 1 and not re.match(r"\d", cells[0]):
            name = cells[0]
        else:
            name = name or cells.pop(0)
            found[name], name = " ".join(cells).split(), ""
    return found


# --- The report ---------------------------------------------------------------------------------


def test_the_timed_part_of_a_demo_is_shown_by_its_ranges():
    done = report(GATING)
    assert done.returncode == 0 and done.stderr == ""
    titles = [title.split(":")[0] for title in sections(done.stdout)]
    assert titles[:4] == ["The GPU in all", "timed / six_kernels", "timed / library_best",
                          "timed, outside of its inner ranges"]
    table = rows(section(done.stdout, "timed / six_kernels: 5 times"))
    launches = {name: cells[0] for name, cells in table.items()}
    assert launches == {
        GEMM: "10", "add_bias": "10", "multiply": "5", "sigmoid": "5", "memset 4 B": "10",
        "(gaps between them)": "35", "host: launching": "30", "host: copying": "10",
        "host: synchronizing": "5", "host: other calls": "75"}
    assert table["add_bias"][4:8] == ["128x64", "8x32", "16", "0"]  # grid, block, registers, shared
    assert table[GEMM][4:8] == ["2x66", "384", "168", "208.2K"]
    assert table["host: synchronizing"][3:] == ["cudaEventSynchronize"]
    assert GEMM in section(done.stdout, "What the library's names say")[0]
    # What the program does besides: it empties the cache before every sample.
    assert rows(section(done.stdout, "timed, outside"))["memset 256.0 MiB"][0] == "11"
    assert "verify / six_kernels" in section(done.stdout, "  also ran")[0]


def test_the_figures_are_those_of_the_records():
    """Added up here independently, from the file's lines."""
    lines = [line.split("\t") for line in GATING.read_text().splitlines()]
    timed = next(line for line in lines if line[0] == "push" and line[4] == "timed")
    own = [line for line in lines if line[0] == "push" and line[4] == "six_kernels"
           and int(line[1]) > int(timed[1])]
    ends = {line[3]: int(line[1]) for line in lines if line[0] == "pop"}
    calls = {line[4] for line in lines if line[0] == "call"
             and any(int(mark[1]) < int(line[1]) < ends[mark[3]] for mark in own)}
    kernels = [line for line in lines if line[0] in ("kernel", "memset") and line[5] in calls]
    kernels.sort(key=lambda line: int(line[1]))
    assert len(kernels) == 5 * 8  # six, and the library's two memsets
    bias = [int(line[2]) - int(line[1]) for line in kernels if "add_bias" in line[-1]]
    took = [int(line[2]) - int(line[1]) for line in kernels]
    each = sorted(sum(took[i:i + 8]) for i in range(0, 40, 8))
    spans = sorted(int(kernels[i + 7][2]) - int(kernels[i][1]) for i in range(0, 40, 8))

    done = report(GATING)
    head = next(title for title in sections(done.stdout) if title.startswith("timed / six_kernels"))
    table = rows(section(done.stdout, "timed / six_kernels"))
    assert float(table["add_bias"][1]) == pytest.approx(sum(bias) / 1e6, abs=0.0006)
    assert float(table["add_bias"][2]) == pytest.approx(sum(bias) / len(bias) / 1e3, abs=0.006)
    median, busy, part = map(float, re.search(
        r"median ([\d.]+) ms from start to end, ([\d.]+) ms \((\d+)%\) busy", head).groups())
    assert median == pytest.approx(spans[2] / 1e6, rel=1e-3)
    assert busy == pytest.approx(each[2] / 1e6, rel=1e-3)
    assert part == pytest.approx(100 * each[2] / spans[2], abs=0.51)
    gaps = float(table["(gaps between them)"][1])
    assert gaps == pytest.approx((sum(spans) - sum(took)) / 1e6, abs=0.0006)
    share = sum(float(cells[3].rstrip("%")) for cells in table.values() if "%" in "".join(cells))
    assert share == pytest.approx(100, abs=0.3)


def test_a_gpu_is_busy_while_any_of_its_streams_is(tmp_path):
    kernel = "kernel\t{}\t{}\t{}\t{}\t1\t4x1x1\t32x1x1\t16\t0\tf(int)\n"
    one = "".join(kernel.format(start, end, 0, stream) for start, end, stream in [
        (1000, 5000, 7), (3000, 7000, 8), (4000, 6000, 9), (9000, 11000, 7)])
    for text, line in [
            (one, "The GPU in all: 0.01000 ms from start to end, 0.008000 ms (80%) busy"),
            (one + kernel.format(2000, 4000, 1, 7),
             "Mean of 2 GPUs: 0.01000 ms from start to end, 0.005000 ms (50%) busy")]:
        (tmp_path / "1.txt").write_text(text)
        assert report(tmp_path / "1.txt").stdout.split("\n")[0] == line


def test_the_timeline_shows_the_host_running_ahead():
    lines = section(report(GATING).stdout, "timed / six_kernels, the time with the median")
    host, gpu = (next(line for line in lines if line.startswith("  " + title)).split()[1]
                 for title in ("host", "GPU"))
    assert len(host) == len(gpu) == 88
    assert re.fullmatch(r"M*L{2,}W+\.?", host), host  # launches at once, then waits
    letters = re.sub(r"(.)\1*", r"\1", gpu.replace(".", ""))
    # The memset that empties the cache, then the kernels in the order of the source; the library's
    # own memsets of 4 bytes take less than a column.
    assert letters == "acdeghi"
    assert host.rindex("L") < gpu.index("c")  # launched all before the first one began
    after = re.search(r"After ([\d.]+) us the host had launched it all; after ([\d.]+) us",
                      report(GATING).stdout)
    assert float(after[1]) < 60 < 500 < float(after[2])
    legend = report(GATING).stdout.split("took  us")[1]
    assert re.findall(r"^  ([a-z]) (\S+)", legend, re.MULTILINE) == [
        ("a", "memset"), ("b", "memset"), ("c", GEMM), ("d", "add_bias"), ("e", "sigmoid"),
        ("f", "memset"), ("g", GEMM), ("h", "add_bias"), ("i", "multiply")]


def test_without_a_timed_part_the_other_ranges_are_shown(tmp_path):
    """As with --once: what is outside of all ranges only sets things up."""
    lines = GATING.read_text().splitlines()
    begin = next(int(line.split("\t")[1]) for line in lines if line.endswith("\ttimed"))
    setup = [line for line in lines if int(line.split("\t")[1]) < begin]
    (tmp_path / "1.txt").write_text("\n".join(setup) + "\n")
    done = report(tmp_path / "1.txt")
    assert "compare_rows" in rows(section(done.stdout, "verify / six_kernels"))
    assert "verify / six_kernels, its beginning:" in done.stdout


def test_a_program_without_ranges_is_one_table():
    done = report(STREAMS)
    assert done.returncode == 0
    table = rows(section(done.stdout, "the whole program"))
    # One template with three lists of arguments, which tell them apart.
    assert {name for name in table if "scale" in name} == {
        "scale<float, 2>", "scale<float, 3>", "scale<double, 2>"}
    assert table["hidden"][:1] == ["1"]  # of an anonymous namespace
    assert table["copy host to device 64.0 MiB"][4:6] == ["10", "GB/s"]
    streams = [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("  stream")]
    assert streams == [["stream", "7"], ["stream", "13"], ["stream", "14"]]


# --- Names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, short", [
    ("matmul_basic(float const*, float const*, float*, unsigned long)", "matmul_basic"),
    (BIAS, "add_bias"),
    ("void (anonymous namespace)::fill<float>(float*, int)", "fill"),
    ("void ns::with_matrix<ns::Multiply, float>(float const*, float*)", "with_matrix"),
    ("void demo::compare_rows<__half, demo::ExpectGating>(__half const*, demo::ExpectGating)",
     "compare_rows"),
    ("void run<main::{lambda(int)#1}>(main::{lambda(int)#1})", "run"),
    ("Outer<int>::kernel(int)", "kernel"),
    ("void kernel<(Mode)1, (3 > 2)>(void (*)(int))", "kernel"),
    ("void scan<decltype (f() -> int)>(int) [clone .kd]", "scan"),
    ("std::enable_if<true, void>::type picked<int>(int)", "picked"),
    (GEMM, GEMM),
    ("_Z9not_a_nam", "_Z9not_a_nam"),  # what no demangler knows
    ("sm80_xmma_gemm_f32f32_tn_n_tilesize128x128x8_stage3_ffma__5x_cublas",
     "sm80_xmma_gemm_f32f32_tn_n_tilesize128x128x8_stage3_ffma__5x_cublas"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>"
     "(cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4::Params)",
     "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4"),
    ("void cutlass::Kernel<cutlass::gemm::ns::h16816<cutlass::Shape<1, 2> > >(int)", "h16816"),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __half, (bool)1>(int)",
     "splitKreduce_kernel"),
])
def test_a_kernel_is_called_what_the_source_calls_it(name, short):
    assert kernel_names.short_names([name]) == {name: short}


@pytest.mark.parametrize("name, words", [
    (GEMM, "fp16 in, fp32 sums, fp16 out, tile 256x128, step 64, stages 4, cluster 1x2"),
    ("nvjet_sm90_tst_64x8_64x9_2x4_h_bz_coopB_splitK_relubias_TNT", "bf16 in, fp32 sums, bf16 out, "
     "tile 64x8, step 64, stages 9, cluster 2x4, split k, bias, ReLU, A transposed"),
    ("cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align4",
     "fp32 in, TF32 products, fp32 sums, fp32 out, tile 64x64, step 16, stages 6"),
    ("cutlass_80_simt_sgemm_256x128_8x4_nn_align1",
     "fp32 in, fp32 sums, fp32 out, no tensor cores, tile 256x128, step 8, stages 4"),
    ("ampere_h16816gemm_128x64_ldg8_stages_64x3_nt",
     "fp16 in, fp16 sums, fp16 out, tile 128x64, step 64, stages 3, B transposed"),
    ("sm80_xmma_gemm_f16f16_f32f32_f32_nn_n_tilesize32x32x8_warpsize1x2x1_ffma_aligna2",
     "fp16 in, fp32 products, fp32 sums, fp16 out, no tensor cores, tile 32x32, step 8"),
    ("splitKreduce_kernel", "adds up a gemm's sums over parts of k"),
    ("nvjet_sm100_tst_64x32_64x16_2x1_2cta_v_bz_TNN", ""), ("gemm", ""), ("sgemm_64x64_nn", ""),
])
def test_a_librarys_name_is_put_into_words(name, words):
    assert library_names.meaning(name) == words


@pytest.mark.parametrize("names, short", [
    (["void f<float>(int)", "void f<double>(int)"], ["f<float>", "f<double>"]),
    (["void f<a::X>(int)", "void f<b::X>(int)"], ["f<a::X>", "f<b::X>"]),
    (["a::f(int)", "b::f(int)"], ["a::f", "b::f"]),
    (["f(int)", "f(float)"], ["f(int)", "f(float)"]),
    (["f(int)", "void f<int>(int)", "g(int)"], ["f", "f<int>", "g"]),
])
def test_kernels_that_differ_have_different_names(names, short):
    shown = kernel_names.short_names(names)
    assert [shown[name] for name in names] == short


# --- The trace ----------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [GATING, STREAMS], ids=lambda path: path.stem)
def test_the_trace_is_what_perfetto_reads(file, tmp_path):
    assert report("--trace", tmp_path / "trace.json", file).returncode == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    times = [event["ts"] for event in events]
    assert times == sorted(times) and times[0] >= 0
    for event in events:
        assert {"name", "ph", "ts", "pid", "tid"} <= event.keys() and event["ph"] in "MXsf"
        assert event["ph"] != "X" or event["dur"] >= 0
    records = [line.split("\t")[0] for line in file.read_text().splitlines()]
    shown = [event["cat"] for event in events if event["ph"] == "X"]
    for kind, category in [("kernel", "kernel"), ("memset", "memset"), ("copy", "copy"),
                           ("push", "range"), ("call", "call")]:
        assert shown.count(category) == records.count(kind), kind
    # An arrow leads from every launch to its kernel, forward in time.
    begun = {event["id"]: event["ts"] for event in events if event["ph"] == "s"}
    ended = {event["id"]: event["ts"] for event in events if event["ph"] == "f"}
    assert begun.keys() == ended.keys() and len(begun) == sum(
        map(records.count, ("kernel", "memset", "copy")))
    assert all(begun[number] < ended[number] for number in begun)


# --- What is wrong ------------------------------------------------------------------------------


def test_dropped_records_are_reported(tmp_path):
    (tmp_path / "1.txt").write_text(GATING.read_text() + "dropped\t17\ndropped\t3\n")
    done = report(tmp_path / "1.txt")
    assert done.returncode == 0 and "timed / six_kernels" in done.stdout
    assert_one_line(done.stderr, "profile_report.py")
    assert "dropped 20 records" in done.stderr


def test_records_without_their_other_half_are_taken_as_they_are(tmp_path):
    """What is dropped may be a call, or the end of a range."""
    lines = GATING.read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith(("call", "pop"))) + "\n"
    (tmp_path / "1.txt").write_text(text)
    done = report(tmp_path / "1.txt")
    assert done.returncode == 0 and done.stderr == ""
    assert rows(section(done.stdout, "outside of all"
                        if "outside of all" in done.stdout else "the whole"))["sigmoid"][0] == "6"


def test_what_cupti_says_and_unfinished_kernels_are_reported(tmp_path):
    kernel = next(line for line in GATING.read_text().splitlines() if line.startswith("kernel"))
    fields = kernel.split("\t")
    unfinished = "\t".join(fields[:2] + ["0"] + fields[3:])
    (tmp_path / "1.txt").write_text(f"error\tcuptiSubscribe: busy\n{unfinished}\n{kernel}\n")
    done = report(tmp_path / "1.txt")
    assert done.returncode == 0 and "the whole program" in done.stdout
    assert "cuptiSubscribe: busy" in done.stderr and "1 operations had not ended" in done.stderr


def test_processes_are_shown_together(tmp_path):
    """Their numbers of calls and threads may be the same."""
    for process in ("1", "2"):
        (tmp_path / f"{process}.txt").write_text(GATING.read_text())
    done = report(tmp_path / "1.txt", tmp_path / "2.txt")
    assert rows(section(done.stdout, "timed / six_kernels: 10 times"))["sigmoid"][0] == "10"


def test_a_call_within_a_call_is_no_call_of_the_program(tmp_path):
    """CUDA's runtime calls its driver: that is one launch, and the kernel is the outer call's."""
    (tmp_path / "1.txt").write_text(
        "call\t1000\t9000\t7\t1\tcudaLaunchKernel_v7000\n"
        "call\t2000\t6000\t7\t2\tcuLaunchKernel\n"
        "kernel\t8000\t18000\t0\t7\t2\t4x1x1\t32x1x1\t16\t0\tf(int)\n")
    table = rows(section(report(tmp_path / "1.txt").stdout, "the whole program"))
    assert table["f"][-1] == "8.00"  # us in the call
    assert table["host: launching"][:2] == ["1", "0.008"] and "host: other calls" not in table


@pytest.mark.parametrize("records, remark", [
    ("", "recorded nothing"),
    ("error\tcuptiSubscribe: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED\n", "another tool"),
], ids=["none", "another profiler"])
def test_one_line_says_why_there_is_nothing_to_show(tmp_path, records, remark):
    (tmp_path / "1.txt").write_text(records)
    done = report(tmp_path / "1.txt")
    assert done.returncode == 0 and done.stdout == ""
    assert_one_line(done.stderr, "profile_report.py")
    assert remark in done.stderr


@pytest.mark.parametrize("arguments", [
    [], ["--bogus", GATING], ["--trace"], ["no_such_file.txt"], [ROOT / "README.md"],
], ids=["none", "option", "trace", "missing", "other"])
def test_bad_input_ends_with_one_line(arguments):
    done = report(*arguments)
    assert done.returncode == USAGE and done.stdout == ""
    assert_one_line(done.stderr, "profile_report.py")


def test_the_simulator_has_nothing_to_profile(tmp_path):
    program = ROOT / "cpu/5_gating_unfused"
    if not program.exists():
        pytest.skip("cpu/5_gating_unfused is not built")
    done = profile(program, 64, cwd=tmp_path)
    assert done.returncode == SKIPPED and done.stdout == ""
    assert_one_line(done.stderr, "profile.sh")
    assert "CPU" in done.stderr


@pytest.mark.parametrize("program", ["true", "5", "5_gating_unfused"])
def test_without_a_gpu_it_says_what_it_needs(tmp_path, program):
    if glob.glob("/dev/nvidia[0-9]*"):
        pytest.skip("there is a GPU here")
    copy_folders(tmp_path, "scripts", "src")  # nothing is built there
    done = script("profile.sh", program, root=tmp_path, cwd="/")
    assert done.returncode == SKIPPED and done.stdout == ""
    assert_one_line(done.stderr, "profile.sh")
    assert "GPU" in done.stderr and "driver" in done.stderr


# --- The library --------------------------------------------------------------------------------


def test_the_library_is_what_cuda_and_nvtx_look_for():
    if not LIBRARY.exists():
        pytest.skip("build/libprofile_injection.so is not built")
    symbols = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True,
                             text=True, check=True).stdout
    assert {"InitializeInjection", "InitializeInjectionNvtx2"} <= set(symbols.split())
    needed = subprocess.run(["ldd", LIBRARY], capture_output=True, text=True).stdout
    assert re.search(r"libcupti\.so\S* => /", needed), needed


def test_a_program_runs_under_the_library_where_there_is_no_gpu(tmp_path):
    """It must not get into the way: the same message, the same exit code."""
    if not LIBRARY.exists():
        pytest.skip("build/libprofile_injection.so is not built")
    env = {"PROFILE_RECORDS": str(tmp_path), "CUDA_INJECTION64_PATH": str(LIBRARY),
           "NVTX_INJECTION64_PATH": str(LIBRARY), **NO_GPU}
    plain, profiled = (run(ROOT / "5_gating_unfused", 64, env=env) for env in (NO_GPU, env))
    assert (plain.returncode, plain.stderr) == (profiled.returncode, profiled.stderr)
    assert plain.returncode == SKIPPED


# --- On a GPU -----------------------------------------------------------------------------------


@pytest.fixture
def gpu():
    if GPU.why_not():
        pytest.skip(GPU.why_not())
    if not LIBRARY.exists():
        pytest.skip("build/libprofile_injection.so is not built")


def test_the_total_is_the_programs_own_figure(gpu, tmp_path):
    done = profile("--trace", tmp_path / "trace.json", ROOT / "5_gating_unfused", 4096)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for kernel in ("six_kernels", "library_best"):
        own = float(re.search(rf"^  {kernel} +~?([\d.]+) ms", done.stdout, re.MULTILINE)[1])
        seen = float(re.search(rf"^timed / {kernel}: \d+ times, median ([\d.]+) ms", done.stdout,
                               re.MULTILINE)[1])
        assert seen == pytest.approx(own, rel=0.03)
    legend = re.findall(r"^  [a-z] (\S+)", done.stdout.split("took  us")[1], re.MULTILINE)
    named = [name for name in legend if name != "memset"]
    assert named[1:3] == ["add_bias", "sigmoid"] and named[4:] == ["add_bias", "multiply"]
    assert len(named) == 6 and not {named[0], named[3]} & {"add_bias", "sigmoid", "multiply"}
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_the_exit_code_and_the_output_are_the_programs(gpu):
    done = profile(ROOT / "5_gating_unfused", 64, "--kernel", "none")
    assert done.returncode == USAGE and done.stdout == ""
    assert_one_line(done.stderr, "5_gating_unfused")
    done = profile(ROOT / "5_gating_unfused", 64, "--once")
    assert done.stdout.startswith("5_gating_unfused on ") and "verify / six_kern" in done.stdout


def test_a_lack_of_room_is_reported(gpu):
    done = profile(ROOT / "5_gating_unfused", 64, "--once", env={"PROFILE_BUFFERS": "0"})
    assert done.returncode == 0
    assert re.search(r"dropped \d+ records", done.stderr)
