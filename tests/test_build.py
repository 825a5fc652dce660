"""The build: which toolkit it takes, what it refuses, and what an edit rebuilds."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import bundles
import pages
import translate
from fakes import copy_folders, script
from shared import cuda_toolkit
from suite import FAILED, PROGRAMS, ROOT, assert_one_line, run, scons


@pytest.fixture
def nvcc():
    if script("shared/cuda_toolkit.py").returncode != 0:
        pytest.skip("no CUDA toolkit here")


def fake_toolkit(folder, release, libraries):
    """A toolkit made of what the build asks it: nvcc's answers and the libraries' names."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "include/nvtx3").mkdir(parents=True)
    (folder / "include/nvtx3/nvToolsExt.h").touch()
    nvcc = folder / "bin/nvcc"
    nvcc.write_text(f"""#!/bin/sh
case "$*" in
    --version) echo "Cuda compilation tools, release {release}, V{release}.48" ;;
    *--dryrun*) echo '#$ TOP={folder}' ;;
    --list-gpu-code) printf 'sm_%s\\n' 75 80 86 90 120 ;;
esac
""")
    nvcc.chmod(0o755)
    for library in libraries:
        (folder / "lib" / library).touch()
    return folder


@pytest.fixture
def fake(tmp_path):
    """The path of such a toolkit. It has built nothing yet, so everything is to be built."""
    return fake_toolkit(tmp_path / "cuda", "13.0", ["libcublas.so.13", "libcublasLt.so.13"])


def find_toolkit(home, *arguments, tile="", variable="CUDA_HOME"):
    env = {"CUDA_HOME": "", "TILE": tile, variable: str(home)}
    return script("shared/cuda_toolkit.py", *arguments, env=env)


def test_a_toolkit_of_wheels_is_found(tmp_path):
    """Their libraries lie in lib/ and carry only versioned names."""
    home = fake_toolkit(tmp_path / "cu13", "13.0", ["libcublas.so.13", "libcublasLt.so.13"])
    assert find_toolkit(home).stdout.strip() == str(home / "bin/nvcc")
    assert find_toolkit(home, "--version").stdout.strip() == "13.0.48"


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
@pytest.mark.parametrize("release, libraries, reason", [
    ("11.8", ["libcublas.so", "libcublasLt.so"], "12.0 or later is needed"),
    ("13.0", ["libcublas.so.13"], "lacks cuBLAS"),  # without cuBLASLt
    (None, [], "no "),
], ids=["old", "incomplete", "none"])
def test_the_toolkit_that_the_user_chose_is_never_overruled(tmp_path, variable, release, libraries,
                                                            reason):
    """Whatever else this machine has: one line says what is wrong with it."""
    home = tmp_path / "cuda"
    if release:
        fake_toolkit(home, release, libraries)
    done = find_toolkit(home, variable=variable)
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert re.fullmatch(rf"{variable} is {home}: [^\n]*{reason}[^\n]*; correct it, or unset it\n",
                        done.stderr), done.stderr


# --- NVIDIA's HPC SDK -----------------------------------------------------------------------------


def hpc_sdk(folder, release):
    """The folders of an HPC SDK: (the toolkit, that of cuBLAS, which lies aside)."""
    return folder / "cuda" / release, folder / "math_libs" / release


@pytest.mark.full
@pytest.mark.parametrize("libraries", ["lib64", "targets/x86_64-linux/lib"])
def test_cublas_of_the_hpc_sdk_is_found_beside_its_toolkit(tmp_path, libraries):
    home, math = hpc_sdk(tmp_path / "24.5", "12.4")
    fake_toolkit(home, "12.4", [])
    for file in (f"{libraries}/libcublas.so.12", f"{libraries}/libcublasLt.so.12",
                 f"{libraries}/../include/cublas_v2.h"):
        (math / libraries).mkdir(parents=True, exist_ok=True)
        (math / libraries / "../include").mkdir(exist_ok=True)
        (math / file).touch()
    calls = tmp_path / "24.5/compilers/bin/nvcc"  # a script there calls the toolkit's nvcc
    calls.parent.mkdir(parents=True)
    calls.write_text(f'#!/bin/sh\nexec {home}/bin/nvcc "$@"\n')
    calls.chmod(0o755)
    for chosen in (home, calls.parent.parent):
        done = find_toolkit(chosen)
        assert done.stdout == f"{home}/bin/nvcc\n", done.stderr
        done = scons("-n", "verbose=1", "4_matmul_cublas", env={"CUDA_HOME": str(chosen)})
        folder = math / libraries
        for flag in (f"-isystem={folder.parent}/include", f"-L{folder}",
                     f"-Xlinker=-rpath={folder}"):
            assert flag in done.stdout.split(), done.stdout + done.stderr
    shutil.rmtree(math)
    assert "lacks cuBLAS" in find_toolkit(home).stderr


@pytest.mark.full
def test_a_program_builds_with_the_hpc_sdk_and_starts(nvcc, tmp_path):
    """An SDK made of this machine's toolkit: cuBLAS and its headers moved aside."""
    toolkit = cuda_toolkit.find()
    top = Path(os.path.realpath(toolkit.nvcc)).parent.parent
    home, math = hpc_sdk(tmp_path / "sdk", ".".join(toolkit.version.split(".")[:2]))
    for aside, root in ((False, home), (True, math)):
        for name, source in (("lib64", toolkit.lib_dir), ("include", toolkit.include_dirs()[0])):
            (root / name).mkdir(parents=True)
            for file in Path(source).iterdir():
                if file.name.startswith(("libcublas", "cublas")) == aside:
                    (root / name / file.name).symlink_to(file)
    (home / "bin").mkdir()
    for file in (top / "bin").iterdir():
        if file.name in ("nvcc", "nvcc.profile"):  # nvcc looks beside itself, not where links lead
            shutil.copy(file, home / "bin")
        else:
            (home / "bin" / file.name).symlink_to(file)
    (home / "nvvm").symlink_to(top / "nvvm")
    project = tmp_path / "project"
    copy_folders(project, "scripts")
    shutil.copy(ROOT / "SConstruct", project)
    (project / "src").mkdir()
    (project / "src/4_matmul_cublas.cu").write_text("""
#include <cublas_v2.h>
#include <nvtx3/nvToolsExt.h>
int main() { int major; return cublasGetProperty(MAJOR_VERSION, &major); }
""")
    done = scons("arch=75", "4_matmul_cublas", cwd=project, env={"CUDA_HOME": str(home)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert run(project / "4_matmul_cublas").returncode == 0
    loaded = subprocess.run(["ldd", project / "4_matmul_cublas"], capture_output=True, text=True)
    assert f" => {math}/lib64/libcublas.so" in loaded.stdout


# --- The host's compiler --------------------------------------------------------------------------


def fake_compiler(path, version, macros=""):
    """A C++ compiler that knows these macros."""
    path.write_text(f"#!/bin/sh\ncase $1 in --version) echo 'g++ (Debian) {version}' ;; "
                    f"*) echo '{macros}' ;; esac\n")
    path.chmod(0o755)
    return str(path)


def test_a_compiler_that_is_too_old_is_refused_in_one_line(tmp_path):
    """As g++ 10, which has no std::bit_cast."""
    old = fake_compiler(tmp_path / "g++", "10.2.1", "#define __cplusplus 201709L")
    for target in ("cpu/1_matmul_basic", "programs"):
        done = scons("-n", target, env={"CXX": old})
        assert (done.returncode, done.stdout) == (FAILED, "")
        assert re.fullmatch(rf"scons: {re.escape(old)} 10\.2\.1 [^\n]*g\+\+ 11 [^\n]*CXX=[^\n]*\n",
                            done.stderr), done.stderr


@pytest.mark.full
@pytest.mark.parametrize("env, used", [
    ({}, None), ({"CXX": "g++"}, None), ({"CXX": "other"}, "other"), ({"CXX": "clang++"}, None),
    ({"CXX": "g++", "NVCC_CCBIN": "other"}, "other"),
    ({"CXX": "env LANG=C g++"}, None),  # of several words, which -ccbin does not take
])
def test_a_compiler_of_the_users_own_reaches_nvcc(fake, tmp_path, env, used):
    other = fake_compiler(tmp_path / "an other", "12.2", "#define __cpp_lib_bit_cast 201806L")
    fake_compiler(tmp_path / "clang++", "14", "#define __cpp_lib_bit_cast 201806L")
    env = {name: value.replace("other", other) for name, value in env.items()}
    env["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    done = scons("-n", "verbose=1", "2_matmul_sharedmem",
                 env={"CXX": "", "NVCC_CCBIN": "", "CUDA_HOME": str(fake), **env})
    commands = re.findall(r"^\S+/nvcc .*", done.stdout, re.MULTILINE)
    assert commands and all(command.count("-ccbin") == bool(used) and
                            re.findall(r'"-ccbin=(.*?)"', command) == ([other] if used else [])
                            for command in commands), done.stdout + done.stderr


def test_a_folder_whose_name_python_cannot_read(tmp_path):
    """It could where PYTHONUTF8 were not 0: scripts unset that, and scons says so."""
    folder = tmp_path / "\u00fc"
    copy_folders(folder, "scripts")
    shutil.copy(ROOT / "SConstruct", folder)
    ascii_alone = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    done = scons("cpu/1_matmul_basic", cwd=folder, env=ascii_alone)
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "scons")
    code = 'source scripts/setup.sh; begin; python3 -c "import os; os.getcwd().encode()"'
    subprocess.run(["bash", "-c", code], cwd=folder, env={**os.environ, **ascii_alone}, check=True)


@pytest.mark.parametrize("said", [
    "error: #error -- unsupported GNU version! gcc versions later than 13 are not supported! The "
    "nvcc flag '-allow-unsupported-compiler' can be used to override this",
    "nvcc fatal   : gcc versions later than 13 are not supported",
])
def test_a_compiler_that_nvcc_refuses_is_named_in_one_line(fake, said):
    nvcc = fake / "bin/nvcc"
    nvcc.write_text(nvcc.read_text() + f'case "$*" in *" -E "*) echo "{said}" && exit 1 ;; esac\n')
    done = scons("-n", "programs", env={"CUDA_HOME": str(fake), "CXX": "", "NVCC_CCBIN": ""})
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert done.stderr == (
        "scons: CUDA 13.0.48 does not compile with g++: gcc versions later than 13 are not "
        "supported; NVCC_CCBIN=g++-12, say, names another compiler for nvcc\n")


@pytest.mark.full
def test_clang_compiles_all_programs_for_the_cpu(tmp_path):
    """In one file, beside what they share, as far as the syntax: what g++ passes over, clang may
    not."""
    clang = shutil.which("clang++") or pytest.skip("clang++ is not installed")
    for folder in ("include", "src"):
        for header in filter(Path.is_file, (ROOT / folder).rglob("*")):
            name = header.relative_to(ROOT)
            if not (ROOT / "simulator/cuda" / header.relative_to(ROOT / folder)).exists():
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                translate.translate_file(header, tmp_path / name)
    everything = tmp_path / "all.cu"
    everything.write_text(bundles.all_in_one(bundles.apart(
        {pages.in_one(name): pages.source_of(name) for name in PROGRAMS})))
    translate.translate_file(everything, tmp_path / "all.cpp")
    flags = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas",
             "-Wno-unknown-attributes", "-Wno-unused-const-variable", "-pthread"]
    folders = [f"-I{folder}" for folder in (ROOT / "simulator/cuda", tmp_path / "include",
                                            tmp_path / "src")]
    shared = [path for kind in ("*.cu", "*.cpp") for path in (tmp_path / "src/demo").glob(kind)]
    done = subprocess.run([clang, *flags, *folders, "-include", "cuda_runtime.h", "-x", "c++",
                           tmp_path / "all.cpp", *shared], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- The compiler of CUDA Tile C++ --------------------------------------------------------------


def add_tile_compiler(root, release="13.5"):
    """What makes an nvcc one that compiles tile kernels."""
    (root / "bin").mkdir(parents=True, exist_ok=True)
    nvcc, tileiras = root / "bin/nvcc", root / "bin/tileiras"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.37'\n")
    tileiras.write_text("#!/bin/sh\n")
    for file in (nvcc, tileiras):
        file.chmod(0o755)
    return nvcc


@pytest.fixture
def found_tile(monkeypatch, tmp_path):
    """find_tile() of a toolkit, in a project of its own, whose .venv/tile is still to be made."""
    monkeypatch.delenv("TILE", raising=False)
    monkeypatch.setattr(cuda_toolkit, "PROJECT", str(tmp_path / "project"))
    return lambda home, version="13.0.48": cuda_toolkit.find_tile(cuda_toolkit.Toolkit(
        str(home / "bin/nvcc"), version, str(home / "lib")))


def beside(tmp_path):
    return tmp_path / "project/.venv/tile/nvidia/cu13"


def test_a_new_toolkit_compiles_tile_kernels_itself(found_tile, tmp_path):
    home = fake_toolkit(tmp_path / "cuda", "13.3", [])
    with pytest.raises(cuda_toolkit.ToolkitError, match="setup.sh --tile installs one"):
        found_tile(home)  # tileiras is a package of its own
    (home / "bin/tileiras").touch(mode=0o755)
    add_tile_compiler(beside(tmp_path))
    assert found_tile(home) == (str(home / "bin/nvcc"), "13.3.48", ["--enable-tile"],
                                str(home / "lib"))


@pytest.mark.parametrize("release", ["13.0", "13.2"])
def test_beside_an_older_toolkit_another_nvcc_compiles_tile_kernels(found_tile, tmp_path, release):
    home = fake_toolkit(tmp_path / "cuda", release, [])
    (home / "bin/tileiras").touch(mode=0o755)
    nvcc = add_tile_compiler(beside(tmp_path))
    include = home / "include"  # of the toolkit: the other has no cuBLAS
    assert found_tile(home) == (
        str(nvcc), "13.5.37", ["--enable-tile", f"-isystem={include}", f"-isystem={include}/cccl"],
        str(beside(tmp_path) / "lib"))
    with pytest.raises(cuda_toolkit.ToolkitError):  # cuBLAS 12 is not for its programs
        found_tile(home, "12.8.93")
    add_tile_compiler(beside(tmp_path), "13.2")
    with pytest.raises(cuda_toolkit.ToolkitError):
        found_tile(home)


def test_tile_kernels_can_be_left_out(found_tile, monkeypatch, tmp_path):
    home = fake_toolkit(tmp_path / "cuda", "13.3", [])
    (home / "bin/tileiras").touch(mode=0o755)
    monkeypatch.setenv("TILE", "0")
    with pytest.raises(cuda_toolkit.ToolkitError, match="^TILE=0 "):
        found_tile(home)
    monkeypatch.setenv("TILE", "")
    assert found_tile(home)


def with_tiles(names):
    """Those programs whose kernels are in CUDA Tile C++, too."""
    return [name for name in names if '"tile.cuh"' in (ROOT / f"src/{name}.cu").read_text("utf-8")]


def compilers(home, tile="", target="programs"):
    """What would compile each program: {name: (nvcc, whether it gets --enable-tile)}."""
    done = scons("-n", "verbose=1", target, env={"CUDA_HOME": str(home), "TILE": tile})
    commands = re.findall(r"^(\S+/nvcc) (.*) -o (\w+) ", done.stdout, re.MULTILINE)
    return {name: (nvcc, "--enable-tile" in flags) for nvcc, flags, name in commands}


@pytest.mark.full
def test_programs_without_tile_kernels_keep_their_compiler(tmp_path):
    home = fake_toolkit(tmp_path / "cuda", "13.3", ["libcublas.so.13", "libcublasLt.so.13"])
    (home / "bin/tileiras").touch(mode=0o755)
    nvcc = str(home / "bin/nvcc")
    assert with_tiles(PROGRAMS) == ["10_attention", "11_lora", "13_dlrm", "6_gating_fused",
                                    "bonus_tile"]
    assert compilers(home) == {name: (nvcc, name in with_tiles(PROGRAMS)) for name in PROGRAMS}
    # Without that compiler every program builds nevertheless.
    assert compilers(home, tile="0") == {name: (nvcc, False) for name in PROGRAMS}


def test_what_is_missing_for_tile_kernels_is_said_in_one_line(tmp_path):
    home = fake_toolkit(tmp_path / "cuda", "13.3", ["libcublas.so.13", "libcublasLt.so.13"])
    (home / "bin/tileiras").touch(mode=0o755)
    assert find_toolkit(home, "--tile").stdout == str(home / "bin/nvcc") + "\n"
    done = find_toolkit(home, "--tile", tile="0")
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert re.fullmatch(r"TILE=0 [^\n]+\n", done.stderr)


@pytest.mark.full
def test_a_compiler_of_tile_kernels_that_is_installed_later_rebuilds_what_has_them(tmp_path):
    """In a copy of what programs are built of, where an nvcc makes what it is asked for."""
    project = tmp_path / "project"
    copy_folders(project, "src", "include", "scripts")
    shutil.copy(ROOT / "SConstruct", project)
    home = fake_toolkit(tmp_path / "cuda", "13.0", ["libcublas.so.13", "libcublasLt.so.13"])
    makes = """while [ $# -gt 0 ]; do [ "$1" != -o ] || touch "$2"; shift; done\n"""
    for nvcc in (home / "bin/nvcc", add_tile_compiler(beside(tmp_path))):
        nvcc.write_text(nvcc.read_text() + makes)
    tile = beside(tmp_path).parent
    tile.rename(tmp_path / "not_yet")

    def built():
        done = scons("-j1", "verbose=1", "programs", cwd=project,
                     env={"CUDA_HOME": str(home), "TILE": ""})
        assert done.returncode == 0, done.stdout + done.stderr
        return re.findall(r" -o (\w+) ", done.stdout)

    assert sorted(built()) == PROGRAMS and built() == []
    (tmp_path / "not_yet").rename(tile)
    assert built() == with_tiles(PROGRAMS) and built() == []


@pytest.mark.full
def test_all_but_the_profiler_builds_without_cupti(tmp_path):
    home = fake_toolkit(tmp_path / "cuda", "13.0", ["libcublas.so.13", "libcublasLt.so.13"])
    done = find_toolkit(home, "--cupti")
    assert done.returncode == FAILED and done.stdout == ""
    assert re.fullmatch(r"[^\n]+ install cuda-cupti-13-0[^\n]*\n", done.stderr)
    assert scons("-n", "programs", env={"CUDA_HOME": str(home)}).returncode == 0
    done = scons("-n", "profile", env={"CUDA_HOME": str(home)})
    assert done.returncode == FAILED
    assert re.fullmatch(r"scons: [^\n]+ install cuda-cupti-13-0[^\n]*\n", done.stderr)


@pytest.mark.parametrize("folder, include", [("lib", "include"),
                                             ("extras/CUPTI/lib64", "extras/CUPTI/include")])
def test_cupti_is_found_where_toolkits_have_it(tmp_path, folder, include):
    home = fake_toolkit(tmp_path / "cuda", "13.0", ["libcublas.so.13", "libcublasLt.so.13"])
    for file in (home / folder / "libcupti.so.13", home / include / "cupti.h"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert find_toolkit(home, "--cupti").stdout.strip() == str(home / folder / "libcupti.so.13")


def test_a_toolkit_without_nvtx_is_passed_over(tmp_path):
    """The programs name their ranges for profilers."""
    home = fake_toolkit(tmp_path / "cuda", "13.0", ["libcublas.so.13", "libcublasLt.so.13"])
    (home / "include/nvtx3/nvToolsExt.h").unlink()
    if os.path.exists("/usr/include/nvtx3/nvToolsExt.h"):
        pytest.skip("this system has NVTX's headers for all toolkits")
    assert str(home) not in find_toolkit(home).stdout


@pytest.mark.full
def test_programs_for_debuggers_replace_no_others(nvcc):
    """Nor does what they share. Built for an architecture that nothing was built for, so that there
    is something to do."""
    commands = scons("-n", "verbose=1", "debug=1", "arch=75,89", "2_matmul_sharedmem").stdout
    *shared, program = re.findall(r" -o (\S+) ", commands)
    assert program == "build/debug/2_matmul_sharedmem"
    assert shared and all(path.startswith("build/debug/demo/") for path in shared)
    assert " -G " in commands
    commands = scons("-n", "verbose=1", "arch=75,89", "2_matmul_sharedmem").stdout
    *shared, program = re.findall(r" -o (\S+) ", commands)
    assert program == "2_matmul_sharedmem"
    assert shared and all(path.startswith("build/demo/") for path in shared)


@pytest.mark.full
def test_kernels_for_hopper_may_spill_where_they_are_built_for_older_gpus(nvcc):
    """In one build of several architectures ptxas does not say which of them it warns of."""
    for arch, warned in (("90a", True), ("75,90a", False)):
        commands = scons("-n", "verbose=1", "debug=1", f"arch={arch}", "bonus_softmax_rows").stdout
        assert " -o build/debug/bonus_softmax_rows " in commands
        assert ("--warn-on-spills" in commands) == warned


def test_lessons_are_the_numbered_programs(fake):
    for target in ("lessons", "programs"):
        done = scons("-n", "verbose=1", target, env={"CUDA_HOME": str(fake)})
        built = re.findall(r" -o (\w+) ", done.stdout)
        assert sorted(built) == [name for name in PROGRAMS
                                 if target == "programs" or name[0].isdigit()], done.stderr


@pytest.mark.full
@pytest.mark.parametrize("target, has", [
    ("cpu/lessons", lambda name: name[0].isdigit()),
    ("cpu/programs", lambda name: "count/" not in name),
    ("cpu", lambda name: True),
])
def test_programs_for_the_cpu_have_the_same_targets(target, has):
    names = [folder + name for folder in ("", "count/") for name in PROGRAMS]
    done = scons("-n", "-c", target)  # which names what is not built, too
    removed = re.findall(r"^Removed cpu/(\S+)$", done.stdout, re.MULTILINE)
    assert sorted(removed) == sorted(filter(has, names)), done.stderr


@pytest.mark.parametrize("gpus, arch, wanted", [
    ([], "", "75 80 90a, PTX 90"),
    (["8.6"], "", "86, PTX 86"),
    (["9.0", "8.0", "9.0"], "", "80 90a, PTX 90"),
    (["12.1"], "", "120, PTX 120"),  # newer than the toolkit
    (["7.0"], "", "75 80 90a, PTX 90"),  # older than the programs
    (["8.6"], "arch=all", "75 80 86 90a 120, PTX 120"),
    (["8.6"], "arch=75,90a", "75 90a, PTX 90"),
    (["12.0"], "", "120, PTX 120"),  # no a: its code runs on 12.1, too
    (["12.0"], "arch=120a", "120a, PTX 120"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else value)
def test_architectures(fake, gpus, arch, wanted):
    smi = fake / "bin/nvidia-smi"
    smi.write_text("#!/bin/sh\n" + "".join(f"echo {gpu}\n" for gpu in gpus))
    smi.chmod(0o755)
    done = scons("-n", "verbose=1", *filter(None, [arch]), "2_matmul_sharedmem", env={
        "CUDA_HOME": str(fake), "PATH": f"{fake}/bin:{os.environ['PATH']}"})
    commands = re.findall(r"^\S+/nvcc .*", done.stdout, re.MULTILINE)
    for command in commands:  # those of what the program shares, too
        code, ptx = (re.findall(rf"code={kind}_(\w+)", command) for kind in ("sm", "compute"))
        assert f"{' '.join(code)}, PTX {' '.join(ptx)}" == wanted
    assert commands, done.stderr


@pytest.mark.parametrize("option", ["bogus=1", "debug=2", "sanitize=1", "arch=10", "arch=sm_90",
                                    "arch=90b"])
def test_a_bad_option_ends_with_one_line(nvcc, option):
    done = scons("-n", option)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1 and lines[0].startswith("scons: "), done.stderr


@pytest.mark.full
def test_architectures_are_compiled_of_what_asks_for_them(fake):
    """A program whose sources are the same for all GPUs needs no more than one."""
    done = scons("-n", "architectures", env={"CUDA_HOME": str(fake)})
    compiled = set(re.findall(r"nvcc src/(\w+)\.cu \(cubin 75\)", done.stdout))
    assert "bonus_matmul_mma" in compiled and "1_matmul_basic" not in compiled, done.stderr
    assert "(cubin 80)" in done.stdout and "(cubin 90)" not in done.stdout


@pytest.mark.parametrize("build", ["cpu/hello", "hello"])
def test_the_program_that_stands_alone(build):
    done = run(ROOT / build)
    if build == "hello" and not cuda_toolkit.gpus_here():
        assert (done.returncode, done.stdout) == (FAILED, "")
        assert_one_line(done.stderr, "hello")
    else:
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(r"10000000 sums, 0 wrong: [\d.]+ ms, [\d.]+ GB/s\n", done.stdout)


def test_a_mutant_that_does_not_fit_is_named(tmp_path):
    mutant = pages.Mutant("bug", "kernel", "reason", [("no such text", "")])
    with pytest.raises(ValueError, match="^bug: 'no such text' occurs 0 times, not once$"):
        pages.edited(mutant, pages.source_of("1_matmul_basic"))


SMALL_HEADER = ["demo.cuh", *re.findall(r"^//   (demo/\S+)",
                                        (ROOT / "include/demo.cuh").read_text(), re.MULTILINE)]


def test_the_small_header_lists_its_files_and_is_small():
    texts = {name: (ROOT / "include" / name).read_text(encoding="utf-8") for name in SMALL_HEADER}
    included = {f"demo/{Path(name).name}" for text in texts.values()
                for name in re.findall(r'#include "(.*)"', text)}
    assert included == {*SMALL_HEADER} - {"demo.cuh"}
    assert sum(text.count("\n") for text in texts.values()) <= 1200


@pytest.mark.full
def test_editing_any_header_rebuilds_what_includes_it(nvcc):
    """SCons does not look into .cu files by itself."""
    one, other = (scons("-n", "--tree=all", program).stdout
                  for program in ("2_matmul_sharedmem", "6_gating_fused"))
    for file in [*(ROOT / "src/demo").glob("*.c*"), ROOT / "src/demo/data_sheets.inc"]:
        assert f"src/demo/{file.name}\n" in one
    for header in SMALL_HEADER:  # as the program's own, not of what it is linked with
        assert f"\n  +-include/{header}\n" in one and f"\n  +-include/{header}\n" in other
    assert "src/gating/unfused.cuh" in other and "src/gating/unfused.cuh" not in one


@pytest.mark.full
def test_the_line_of_the_documents_builds_a_program(nvcc, tmp_path):
    text = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    [line] = re.findall(r"^    nvcc ((?:.*\\\n)*.* -o 2_matmul_sharedmem)$", text, re.MULTILINE)
    assert "-arch=native " in line
    line = line.replace("-arch=native ", "-arch=sm_90 ").replace(" -o ", f" -o {tmp_path}/")
    done = subprocess.run(["bash", "-c", f"{cuda_toolkit.find().nvcc} {line}"], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert run(tmp_path / "2_matmul_sharedmem", "--describe").returncode == 0
