"""compute-sanitizer finds nothing in any program: no access out of bounds, no race, no read of
memory that nobody wrote, no misused barrier."""

import os
import re
import shutil

import pytest

from suite import GATING, GPU, PROGRAMS, ROOT, run

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


@pytest.mark.parametrize("tool", SUMMARY)
@pytest.mark.parametrize(
    "program, size",
    [(program, ("160",)) for program in PROGRAMS]
    + [(program, ("--talk", "32")) for program in GATING if not program.startswith("bonus")],
    ids=lambda value: value if isinstance(value, str) else " ".join(value))
def test_clean(sanitizer, tool, program, size):
    if not (ROOT / program).exists():
        pytest.skip(f"{program} is not built")
    done = run(sanitizer, "--tool", tool, "--error-exitcode", FOUND, ROOT / program, *size,
               "--once", timeout=300)
    findings = [line for line in done.stdout.splitlines() if line.startswith("=========")]
    assert done.returncode == 0, "\n".join(findings[:40]) or done.stderr
    summaries = [line for line in findings if re.search(r"\bSUMMARY\b", line)]
    assert summaries == ["========= " + SUMMARY[tool]]
