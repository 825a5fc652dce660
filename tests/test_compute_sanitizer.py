"""compute-sanitizer finds nothing in any program: no access out of bounds, no race, no read of
memory that nobody wrote, no misused barrier. (wgmma and bulk copies are checked as well: the tool's
options --check-warpgroup-mma and --check-bulk-copy are on by themselves.)"""

import os
import re
import shutil

import pytest

import suite
from suite import GPU, ROOT, SKIPPED, run

pytestmark = pytest.mark.full

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


RUNS = [(program, ("160",)) for program in suite.programs(suite.takes_n)]
RUNS += [(program, ("--rows", "37", "--cols", "1003", "--dtype", "fp16"))
         for program in suite.programs(suite.any_shape)]
RUNS += [(program, ("--talk", "32"))
         for program in suite.programs(suite.takes_talk, suite.one_size)]
RUNS += suite.runs_of("SANITIZED")


def race_runs(program, size):
    """racecheck is about shared memory, and instrumenting cuBLASLt's kernels for it ends some
    processes without a word. So where a library is called only our own kernels are run."""
    about = suite.declared(program)
    if about is None:
        return [(program, size)]  # it is not built, which is why it is skipped
    libraries = {"library"} if about["problems"][0]["memory_bound"] else {"library", "yardstick"}
    if not any(c["role"] in libraries for c in about["contenders"]):
        return [(program, size)]
    shape = "talk" if "--talk" in size else "square"
    return [(program, size + ("--kernel", c["kernel"])) for c in about["contenders"]
            if c["role"] == "ours" and c["only"] in (None, shape)]


RACE_RUNS = [race_run for program, size in RUNS if program in suite.programs(suite.one_size)
             for race_run in race_runs(program, size)]


@pytest.mark.parametrize(
    "tool, program, arguments",
    [(tool, *run) for tool in SUMMARY for run in (RACE_RUNS if tool == "racecheck" else RUNS)],
    ids=suite.words)
def test_clean(sanitizer, tool, program, arguments):
    if not (ROOT / program).exists():
        pytest.skip(f"{program} is not built")
    done = run(sanitizer, "--tool", tool, "--error-exitcode", FOUND, ROOT / program, *arguments,
               "--once", timeout=300)
    if done.returncode == SKIPPED and (GPU.may_skip(program) or
                                       set(suite.needs(program)) & set(arguments)):
        pytest.skip(done.stderr.strip())
    findings = [line for line in done.stdout.splitlines() if line.startswith("=========")]
    assert done.returncode == 0, "\n".join(findings[:40]) or done.stderr
    summaries = [line for line in findings if re.search(r"\bSUMMARY\b", line)]
    assert summaries == ["========= " + SUMMARY[tool]]
