"""compute-sanitizer finds nothing in any program: no access out of bounds, no race, no read of
memory that nobody wrote, no misused barrier. (wgmma and bulk copies are checked as well: the tool's
options --check-warpgroup-mma and --check-bulk-copy are on by themselves.)"""

import os
import re
import shutil

import pytest

from suite import GATING, GPU, HOPPER, HOPPER_KERNELS, MATRIX, PROGRAMS, ROOT, SKIPPED, run

SUMMARY = {
    "memcheck": "ERROR SUMMARY: 0 errors",
    "initcheck": "ERROR SUMMARY: 0 errors",
    "synccheck": "ERROR SUMMARY: 0 errors",
    "racecheck": "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
}
FOUND = 9  # the exit code we ask for


def find_sanitizer():
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    paths = [shutil.which("compute-sanitizer")]
    paths += [os.path.join(home, "bin/compute-sanitizer") for home in homes if home]
    return next((path for path in paths if path and os.access(path, os.X_OK)), None)


@pytest.fixture(scope="module")
def sanitizer():
    reason = GPU.why_not()
    if reason:
        pytest.skip(reason)
    return find_sanitizer() or pytest.skip("compute-sanitizer is not installed")


RUNS = [(program, ("160",)) for program in PROGRAMS]
RUNS += [(program, ("--rows", "37", "--cols", "1003", "--dtype", "fp16")) for program in MATRIX]
RUNS += [("8_softmax", ("--rows", rows, "--cols", cols))
         for rows, cols in (("5", "8192"), ("5", "33000"), ("5", "33001"), ("5", "300001"),
                            ("700", "9001"))]
RUNS += [(program, ("--talk", "32")) for program in GATING if not program.startswith("bonus")]

# racecheck is about shared memory, and instrumenting cuBLASLt's kernels for it ends some processes
# without a word. So where cuBLASLt is called only our own kernels with shared memory are run.
RACE_RUNS = [run for run in RUNS if run[0] not in GATING and run[0] not in HOPPER]
RACE_RUNS += [("6_gating_fused", size + ("--kernel", kernel))
              for size, kernel in ((("160",), "fused_tiled"), (("--talk", "32"), "fused_tiled"),
                                   (("--talk", "32"), "fused_streamed"),
                                   (("160",), "fused_hopper"), (("--talk", "32"), "fused_hopper"))]
RACE_RUNS += [("bonus_matmul_hopper", ("160", "--kernel", kernel))
              for kernel in ("wgmma", "tma", "specialised", "persistent")]


@pytest.mark.parametrize(
    "tool, program, arguments",
    [(tool, *run) for tool in SUMMARY for run in (RACE_RUNS if tool == "racecheck" else RUNS)],
    ids=lambda value: value if isinstance(value, str) else " ".join(value))
def test_clean(sanitizer, tool, program, arguments):
    if not (ROOT / program).exists():
        pytest.skip(f"{program} is not built")
    done = run(sanitizer, "--tool", tool, "--error-exitcode", FOUND, ROOT / program, *arguments,
               "--once", timeout=300)
    if done.returncode == SKIPPED and (program in HOPPER or HOPPER_KERNELS & set(arguments)):
        pytest.skip(done.stderr.strip())
    findings = [line for line in done.stdout.splitlines() if line.startswith("=========")]
    assert done.returncode == 0, "\n".join(findings[:40]) or done.stderr
    summaries = [line for line in findings if re.search(r"\bSUMMARY\b", line)]
    assert summaries == ["========= " + SUMMARY[tool]]
