"""The build: which toolkit it takes, what it refuses, and what an edit rebuilds."""

import os
import re
import subprocess
import sys

import pytest

import pages
from suite import PROGRAMS, ROOT, scons

FIND = [sys.executable, str(ROOT / "scripts/shared/cuda_toolkit.py")]


@pytest.fixture
def nvcc():
    if subprocess.run(FIND, capture_output=True).returncode != 0:
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


def find_toolkit(home, *arguments):
    return subprocess.run(FIND + list(arguments), capture_output=True, text=True,
                          env={**os.environ, "CUDA_HOME": str(home)})


def test_a_toolkit_of_wheels_is_found(tmp_path):
    """Their libraries lie in lib/ and carry only versioned names."""
    home = fake_toolkit(tmp_path / "cu13", "13.0", ["libcublas.so.13", "libcublasLt.so.13"])
    assert find_toolkit(home).stdout.strip() == str(home / "bin/nvcc")
    assert find_toolkit(home, "--version").stdout.strip() == "13.0.48"


@pytest.mark.parametrize("release, libraries", [
    ("11.8", ["libcublas.so", "libcublasLt.so"]),  # too old
    ("13.0", ["libcublas.so.13"]),  # without cuBLASLt
], ids=["old", "incomplete"])
def test_a_toolkit_that_cannot_build_the_suite_is_passed_over(tmp_path, release, libraries):
    home = fake_toolkit(tmp_path / "cuda", release, libraries)
    done = find_toolkit(home)
    assert str(home) not in done.stdout
    # Either there is a better one on this machine, or one line says what is wrong.
    assert done.returncode == 0 or re.fullmatch(r"[^\n]+\n", done.stderr)


def test_all_but_the_profiler_builds_without_cupti(tmp_path):
    home = fake_toolkit(tmp_path / "cuda", "13.0", ["libcublas.so.13", "libcublasLt.so.13"])
    done = find_toolkit(home, "--cupti")
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(r"[^\n]+ install cuda-cupti-13-0[^\n]*\n", done.stderr)
    assert scons("-n", "programs", env={"CUDA_HOME": str(home)}).returncode == 0
    done = scons("-n", "profile", env={"CUDA_HOME": str(home)})
    assert done.returncode == 1
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


def test_programs_for_debuggers_replace_no_others(nvcc):
    """Built for an architecture that nothing was built for, so that there is something to do."""
    commands = scons("-n", "verbose=1", "debug=1", "arch=75,89", "2_matmul_sharedmem").stdout
    assert re.findall(r" -o (\S+) ", commands) == ["build/debug/2_matmul_sharedmem"]
    assert " -G " in commands
    commands = scons("-n", "verbose=1", "arch=75,89", "2_matmul_sharedmem").stdout
    assert re.findall(r" -o (\S+) ", commands) == ["2_matmul_sharedmem"]


def test_lessons_are_the_numbered_programs(fake):
    for target in ("lessons", "programs"):
        done = scons("-n", "verbose=1", target, env={"CUDA_HOME": str(fake)})
        built = re.findall(r" -o (\S+) ", done.stdout)
        assert sorted(built) == [name for name in PROGRAMS
                                 if target == "programs" or name[0].isdigit()], done.stderr


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
], ids=lambda value: " ".join(value) if isinstance(value, list) else value)
def test_architectures(fake, gpus, arch, wanted):
    smi = fake / "bin/nvidia-smi"
    smi.write_text("#!/bin/sh\n" + "".join(f"echo {gpu}\n" for gpu in gpus))
    smi.chmod(0o755)
    done = scons("-n", "verbose=1", *filter(None, [arch]), "2_matmul_sharedmem", env={
        "CUDA_HOME": str(fake), "PATH": f"{fake}/bin:{os.environ['PATH']}"})
    code, ptx = (re.findall(rf"code={kind}_(\w+)", done.stdout) for kind in ("sm", "compute"))
    assert f"{' '.join(code)}, PTX {' '.join(ptx)}" == wanted, done.stderr


def test_help_explains_targets_and_options():
    text = scons("-h").stdout
    for word in ("programs", "lessons", "tests", "profile", "mutants", "cpu", "arch=", "debug=1",
                 "CUDA_HOME"):
        assert word in text


@pytest.mark.parametrize("option", ["bogus=1", "debug=2", "sanitize=1", "arch=10", "arch=sm_90",
                                    "arch=90b"])
def test_a_bad_option_ends_with_one_line(nvcc, option):
    done = scons("-n", option)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1 and lines[0].startswith("scons: "), done.stderr


def test_architectures_are_compiled_of_what_asks_for_them(fake):
    """A program whose sources are the same for all GPUs needs no more than one."""
    done = scons("-n", "architectures", env={"CUDA_HOME": str(fake)})
    compiled = set(re.findall(r"nvcc src/(\w+)\.cu \(cubin 75\)", done.stdout))
    assert "bonus_matmul_mma" in compiled and "1_matmul_basic" not in compiled, done.stderr
    assert "(cubin 80)" in done.stdout and "(cubin 90)" not in done.stdout


def test_a_mutant_that_does_not_fit_is_named(tmp_path):
    mutant = pages.Mutant("bug", "kernel", "reason", [("no such text", "")])
    with pytest.raises(ValueError, match="^bug: 'no such text' occurs 0 times, not once$"):
        pages.edited(mutant, pages.source_of("1_matmul_basic"))


def test_editing_any_header_rebuilds_what_includes_it(nvcc):
    """SCons does not look into .cu files by itself."""
    tree = scons("-n", "--tree=all", "2_matmul_sharedmem", "6_gating_fused").stdout
    parts = re.findall(r'#include "(.*)"', (ROOT / "include/demo.cuh").read_text())
    headers = [f"include/{name}" for name in ["demo.cuh", "demo/data_sheets.inc"] + parts]
    assert len(headers) > 3
    one, _, other = tree.partition("+-6_gating_fused")
    for header in headers:
        assert header in one and header in other, header
    assert "src/kernels/gating_unfused.cuh" in other and "src/kernels/gating_unfused.cuh" not in one


def test_every_source_is_a_target(nvcc):
    done = scons("-n", "-c", "programs")
    assert done.returncode == 0
    built = [name for name in PROGRAMS if (ROOT / name).exists()]
    assert all(f"Removed {name}\n" in done.stdout for name in built)
