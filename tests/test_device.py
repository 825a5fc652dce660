"""The tests written in CUDA, tests/device/*.cu."""

import pytest

from suite import ROOT, SKIPPED, run

pytestmark = pytest.mark.full


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "tests/device").glob("*.cu")))
def test_device(name):
    done = run(ROOT / "build/tests" / name, "--gtest_brief=1")
    if done.returncode == SKIPPED:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[  PASSED  ]" in done.stdout
