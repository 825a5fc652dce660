"""What stands in for measurements and for a machine with GPUs: rows and files of results, fake
programs that print such rows, a fake nvidia-smi, and how to run a script among them."""

import csv
import json
import os
import re
import shutil
import stat
import subprocess
import sys

import pytest

from suite import COLUMNS, ROOT, build_lock, own_files


def script(name, *arguments, root=ROOT, cwd=None, env=None, python=sys.executable, limit_s=300):
    command = [python] if name.endswith(".py") else ["bash"]
    path = {"PYTHONPATH": str(root / "scripts")} if "/" in name else {}  # as setup.sh exports it
    return subprocess.run(command + [str(root / "scripts" / name), *map(str, arguments)],
                          cwd=cwd or root, env={**os.environ, **path, **(env or {})},
                          timeout=limit_s, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)


# --- Results ----------------------------------------------------------------------------------

CLOCKS = "sm_mhz temperature_c power_w throttled note".split()


def row(program="1_matmul_basic", kernel="matmul_basic", gpu="GPU A", sm="90", dtype="fp32",
        shape="square", n="1024", median_ms="1.000000", spread_pct="0.50", tflops="2.000",
        gb_per_s="", verified="yes", error_of_bound="0.2", launches="1", temp_bytes="0",
        moved_bytes="", least_bytes="12582912", role="ours",
        output_hash="0123456789abcdef", predicted_ms="", as_predicted="", figure="", unit=""):
    values = locals()
    return ",".join(values[name] for name in COLUMNS)


def clocked(row, sm_mhz="1980", temperature_c="50", power_w="600", throttled="", note=""):
    """A row as compare_gpus.sh writes it."""
    return ",".join([row, sm_mhz, temperature_c, power_w, throttled, note])


def stopped(program="1_matmul_basic", shape="square", n="1024", dtype="", verified="failed",
            note="some reason"):
    """The row of a program that did not run."""
    return clocked(row(program, kernel="", sm="", dtype=dtype, shape=shape, n=n, median_ms="",
                       spread_pct="", tflops="", verified=verified, error_of_bound="", launches="",
                       temp_bytes="", least_bytes="", role="", output_hash=""),
                   "", "", "", "", note)


def write_csv(path, *rows, comments=(), columns=COLUMNS):
    lines = [f"# {comment}" for comment in comments] + [",".join(columns)] + list(rows)
    path.write_text("\n".join(lines) + "\n")
    return path


def table_lines(text):
    """The lines of a printed table, as lists of its cells."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


# --- Results of several programs, for plots ---------------------------------------------------

# What plot.py draws of write_measured()'s programs, beside a roofline for each file.
PLOTS = ["curves-1_matmul_basic-fp32",
         "curves-4_matmul_cublas-fp32", "curves-4_matmul_cublas-fp16",
         "curves-5_gating_unfused-fp16", "curves-5_gating_unfused-fp16-talk",
         "curves-6_gating_fused-fp16", "curves-6_gating_fused-fp16-talk", "curves-7_gelu-fp32"]
STOPPED = stopped("8_softmax", n="4096", dtype="fp32", note="out of <memory>")


def python_with(name, code):
    """Where the scripts look for what this code imports; skips the test where there is none."""
    for python in filter(shutil.which, ["python3", str(ROOT / ".venv/bin/python")]):
        if subprocess.run([python, "-c", code], capture_output=True).returncode == 0:
            return python
    pytest.skip(f"{name} is not installed: scripts/test.sh --full installs it")


def python_with_matplotlib():
    return python_with("matplotlib", "import matplotlib")


def measured(program, kernel, dtype, n, ms, flops, moved="", least=100, launches=1, shape="square",
             memory=False, role="ours"):
    """A row whose rates are those of its time."""
    values = {
        "program": program, "kernel": kernel, "gpu": "GPU A", "sm": "90", "dtype": dtype,
        "shape": shape, "n": n, "median_ms": ms, "spread_pct": 1.5,
        "tflops": flops / ms / 1e9 if flops else "",
        "gb_per_s": least / ms / 1e6 if memory else "", "verified": "yes",
        "error_of_bound": 0.1, "launches": launches, "temp_bytes": 0, "moved_bytes": moved,
        "least_bytes": least, "role": role, "output_hash": "0123456789abcdef"}
    return ",".join(str(values.get(name, "")) for name in COLUMNS) + ",1980,50,600,,"


def write_measured(path, gpu="GPU A", speed=1.0, extra=(), protocol=1, chain_rate=560):
    """A file with a program of each kind, at two sizes. chain_rate: the TFLOP/s of 6's chain."""
    rows = []
    for n in (2048, 4096):
        square, s = n * n, n // 4
        product, talk = 2 * n**3, 4 * 4 * s * s * 128 * 64
        rows += [
            measured("1_matmul_basic", "matmul_basic", "fp32", n, product / 3e9 / speed, product,
                     least=12 * square),
            measured("4_matmul_cublas", "cublas_fp32", "fp32", n, product / 50e9 / speed, product,
                     least=12 * square, role="library"),
            measured("4_matmul_cublas", "cublas_fp16", "fp16", n, product / 700e9 / speed, product,
                     least=6 * square, role="library")]
        for program, kernel, role, rate, launches, trips in [
                ("5_gating_unfused", "six_kernels", "chain", 550, 6, 15),
                ("6_gating_fused", "fused", "ours", 720, 1, 4),
                ("6_gating_fused", "six_kernels", "chain", chain_rate, 6, 15),
                ("6_gating_fused", "library_best", "library", 650, 2, 8)]:
            rows.append(measured(program, kernel, "fp16", n, 2 * product / rate / 1e9 / speed,
                                 2 * product, moved=2 * trips * square, least=8 * square,
                                 launches=launches, role=role))
        for program, kernel, role, rate, launches, trips in [
                ("5_gating_unfused", "six_kernels", "chain", 70, 6, 5),
                ("6_gating_fused", "fused", "ours", 340, 1, 1)]:
            least = 8 * s * s * 192
            rows.append(measured(program, kernel, "fp16", s, talk / rate / 1e9 / speed, talk,
                                 moved=trips * least, least=least, launches=launches, shape="talk",
                                 memory=True, role=role))
        for kernel, role, trips, launches in (("chain", "chain", 21, 9), ("fused", "ours", 2, 1),
                                              ("copy", "yardstick", 2, 1)):
            rows.append(measured("7_gelu", kernel, "fp32", n, trips * 4 * square / 4.2e9 / speed,
                                 9 * square if role != "yardstick" else 0, moved=trips * 4 * square,
                                 least=8 * square, launches=launches, memory=True, role=role))
    columns = COLUMNS + CLOCKS
    about = [f"# GPU: {gpu}", f"# protocol: {protocol}", "# driver: 580.1", "# SM clock: 1755 MHz"]
    path.write_text("\n".join(about + [",".join(columns), *rows, *extra]) + "\n")
    return path


def write_grid(path, rates):
    """A file of compare_gpus.sh --grid, with TFLOP/s of ours and of the library's: {(program, data
    type, N): (ours, theirs)}."""
    rows = [measured(program, kernel, dtype, n, 2 * n**3 / rate / 1e9, 2 * n**3, role=role)
            for (program, dtype, n), both in rates.items()
            for kernel, role, rate in zip(("fastest", "cublas"), ("ours", "yardstick"), both)]
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_csv(path, *rows, comments=["GPU: GPU A"], columns=COLUMNS + CLOCKS)


# --- A machine --------------------------------------------------------------------------------

FAKE_PROGRAM = r"""#!/usr/bin/env bash
# Prints what a program with one kernel would; fakes/NAME holds another exit status and message.
name=$(basename "$0") here=$(dirname "$0") shape=square n=4096 dtype=fp32
if [[ $* == *--describe ]]; then
    echo 'DESCRIPTION'
    exit
fi
echo "$name $* on ${CUDA_VISIBLE_DEVICES-}" >>"$here/calls"
while (($#)); do
    case $1 in
        --talk) shape=talk n=$2; shift ;;
        --dtype) dtype=$2; shift ;;
        --rows) shape=$2x$4 n=$2; shift 3 ;;
        --gpus) shape=g$2; shift ;;
        --seed | --rounds | --kernel) shift ;;
        --csv | --hot) ;;
        *) n=$1 ;;
    esac
    shift
done
status=0
if [[ -f $here/fakes/$name ]]; then
    read -r status message <"$here/fakes/$name"
    echo "$name: $message" >&2
fi
((status == 2)) && exit 2
((status == 77)) && exit 77
((status != 130)) || kill -INT $PPID # as Ctrl-C would
((status != 40)) || sleep 0.4
((status != 41)) || sleep 60
echo COLUMNS
verified=yes
((status == 1)) && verified=no
((status == 3)) && exit 3
figures=1.0,0.1,12.5,,$verified,0.2,1,0,,100
echo "$name,kernel_of_$name,Fake GPU,90,$dtype,$shape,$n,$figures,ours,0123456789abcdef,,,,"
((status == 4)) && exit 3 # at a later kernel
((status == 40)) && exit 0
exit $status
""".replace("COLUMNS", ",".join(COLUMNS))

FAKE_NVIDIA_SMI = r"""#!/usr/bin/env bash
here=$(dirname "$0")
case "$*" in
    -L) cat "$here/list" ;;
    *driver_version*) echo 580.1 && echo 580.1 ;;
    *clocks_event_reasons*) [[ ! -f $here/old ]] || exit 2 ;;&
    *_reasons.active*)
        [[ $* == *clocks_throttle* || ! -f $here/old ]] || exit 2
        echo "sampling $2" >>"$here/calls"
        [[ $* == *-lms* ]] || exit 0
        while :; do
            echo "$(date '+%Y/%m/%d %H:%M:%S.%3N'), $(cat "$here/sample")"
            sleep 0.02
        done
        ;;
    *) exit 1 ;;
esac
"""

TWO_GPUS = ["GPU 0: Fake GPU (UUID: GPU-aaa)", "GPU 1: Fake GPU (UUID: GPU-bbb)"]


def driver(folder):
    """The environment for a driver that knows one GPU: "Fake GPU", 8.9, 7 SMs, 18 GiB."""
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    source = folder / "driver.cpp"
    source.write_text("""
        #include <cstddef>
        #include <cstring>
        extern "C" {
        int cuInit(unsigned) { return 0; }
        int cuDeviceGet(int* device, int) { return *device = 0; }
        int cuDeviceGetAttribute(int* value, int what, int) {
            *value = what == 16 ? 7 : what == 75 ? 8 : what == 76 ? 9 : 0;
            return 0;
        }
        int cuDeviceGetName(char* name, int, int) { return !strcpy(name, "Fake GPU"); }
        int cuDeviceTotalMem_v2(size_t* bytes, int) { *bytes = size_t(18) << 30; return 0; }
        }""")
    (folder / "lib").mkdir()
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", folder / "lib/libcuda.so.1"],
                   check=True)
    return {"LD_LIBRARY_PATH": str(folder / "lib")}


def description(program, measured=(64,), multiple=32, talk=None, shapes=None, dtypes=("fp32",),
                sweep="never", grid=None):
    """What --describe prints, as far as the scripts read it. talk: the sizes S worth measuring."""
    own = []
    if len(dtypes) > 1:
        own.append({"name": "--dtype", "help": "the data", "kind": "choice",
                    "values": list(dtypes), "default": dtypes[0]})
    return {
        "program": program, "summary": "computes", "sweep": sweep,
        "sizes": {"multiple": multiple, "default": 4096, "measured": list(measured)},
        "talk": None if talk is None else {"multiple": 16, "measured": list(talk)},
        "shapes": shapes, "variants": [], "grid": grid, "dtypes": list(dtypes),
        "options": own + [{"name": "--csv", "help": "rows for scripts", "kind": "flag"}],
        "contenders": [], "problems": []}


USUAL_SIZES, USUAL_TALK = (1024, 2048, 4096, 8192, 16384), (128, 256, 512, 1024, 2048)
FAKES = {about["program"]: about for about in [  # in the order of the talk
    description("1_matmul_basic", USUAL_SIZES[:-1]),
    description("2_matmul_sharedmem", USUAL_SIZES[:-1]),
    description("6_gating_fused", USUAL_SIZES, talk=USUAL_TALK),
    description("10_fake", USUAL_SIZES[2:], multiple=1, dtypes=("fp32", "fp16"),
                shapes=[[4096, 131072], [8192, 50257]]),
    description("bonus_benchmark_fused", (), talk=(), sweep="always"),
    description("bonus_fake", USUAL_SIZES),
]}


def copy_folders(root, *names):
    """Copies folders of the project. Not the files that Python is just writing its bytecode to, for
    another test: they vanish."""
    for name in names:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("*.pyc.*"))


def copy_tree(tree):
    """Copies the project's own files, and links what is built of the simulator, so that a program
    takes seconds: before SCons writes a file, it removes what is there."""
    if not (ROOT / ".sconsign.dblite").exists() or not (ROOT / "build/cpu/release").exists():
        pytest.skip("the simulator is not built: scons cpu")
    for file in own_files():
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, tree / file)
    with build_lock():
        shutil.copy2(ROOT / ".sconsign.dblite", tree)
        for folder in ("build/cpu/text", "build/cpu/release"):
            for path in filter(os.path.isfile, (ROOT / folder).rglob("*")):
                link = tree / path.relative_to(ROOT)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path)


class FakeMachine:
    """A copy of the scripts with fake programs, and two fake GPUs."""

    def __init__(self, root):
        self.root = root
        copy_folders(root, "scripts")
        for folder in ("src/demo", "bin", "fakes"):
            (root / folder).mkdir(parents=True)
        shutil.copy(ROOT / "src/demo/data_sheets.inc", root / "src/demo")
        for program, about in FAKES.items():
            self.describes(program, about)
        self.install(root / "bin/nvidia-smi", FAKE_NVIDIA_SMI)
        # Ours, without the detour of what chooses among versions of Python.
        self.install(root / "bin/python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        self.has(*TWO_GPUS)
        self.samples("100, 1755, 61, 698.20, 0x0000000000000004")

    @staticmethod
    def install(path, text):
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def describes(self, program, about):
        """Lets a program describe itself so, and its source say as much of it as scripts read."""
        (self.root / "src" / f"{program}.cu").write_text(
            ".grid = {};" * bool(about["grid"]) + ".talk = true;" * bool(about["talk"]))
        self.install(self.root / program, FAKE_PROGRAM.replace("DESCRIPTION", json.dumps(about)))

    def fail(self, program, status, message):
        (self.root / "fakes" / program).write_text(f"{status} {message}\n")

    def has(self, *gpus):
        """What nvidia-smi -L lists."""
        (self.root / "bin/list").write_text("".join(line + "\n" for line in gpus))

    def samples(self, text):
        """What nvidia-smi samples: busy, SM clock, temperature, power, throttle reasons."""
        (self.root / "bin/sample").write_text(text)

    def run(self, name, *arguments, env=None):
        path = f"{self.root}/bin:{os.environ['PATH']}"
        return script(name, "--no-build", *arguments, root=self.root,
                      env={"PATH": path, "CUDA_VISIBLE_DEVICES": "", **(env or {})})

    def calls(self):
        return (self.root / "calls").read_text().splitlines()

    def results(self, name, folder="build/results"):
        """(the header's lines as a dict, the rows) of a file that compare_gpus.sh wrote."""
        lines = (self.root / folder / name).read_text().splitlines()
        about = [line[2:] for line in lines if line.startswith("#")]
        return (dict(re.fullmatch(r"(.*?):(?: (.*))?", line).groups() for line in about),
                list(csv.DictReader(lines[len(about):])))
