"""Fixtures: each test of a program runs once for every backend (see suite.py). And how long each
file of tests took, for test.sh. What takes long, or needs what takes long to build or to install,
is marked `full`: scripts/test.sh leaves it to --full, and ends within 8 minutes on 2 cores."""

import collections
import os
import signal

import pytest

from suite import BACKENDS

# In the background shells ignore Ctrl-C, and so would all that the tests start, also where they
# mean to interrupt it.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["COLUMNS"] = "100"  # whatever terminal the tests run on

SECONDS = collections.Counter()  # by file


def pytest_runtest_logreport(report):
    SECONDS[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish(session):
    """Appends "SECONDS FILE" lines to $TEST_TIMES. With several processes the first one hears of
    all tests, and the others do not write."""
    if "TEST_TIMES" in os.environ and not hasattr(session.config, "workerinput"):
        with open(os.environ["TEST_TIMES"], "a", encoding="utf-8") as file:
            file.writelines(f"{seconds:.1f} {name}\n" for name, seconds in SECONDS.items())


def pytest_configure(config):
    """pytest-xdist keeps the files' order; else it begins with those of the most tests."""
    config.option.loadscopereorder = False


# Each file runs in one process: the longest come first, so that none is alone at the end.
LONGEST = ("test_mutants", "test_results", "test_step", "test_build", "test_output",
           "test_inspect", "test_instructions", "test_properties", "test_update_docs",
           "test_describe", "test_docs", "test_compare_gpus")


def pytest_collection_modifyitems(items):
    def rank(item):
        return LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)

    items.sort(key=rank)


def _pairs(sizes):
    return {"params": [(backend, size) for backend in BACKENDS for size in sizes(backend)],
            "ids": lambda pair: f"{pair[0].name}-{pair[1]}"}


def _require(backend):
    reason = backend.why_not()
    if reason:
        pytest.skip(reason)
    return backend


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request):
    """Where programs are, whether or not they can compute anything here."""
    return request.param


@pytest.fixture
def live(backend):
    """A backend that can compute here. Elsewhere the test is skipped, with the programs' reason."""
    return _require(backend)


@pytest.fixture(**_pairs(lambda backend: backend.sizes))
def live_n(request):
    """A live backend, and N."""
    return _require(request.param[0]), request.param[1]


@pytest.fixture(**_pairs(lambda backend: backend.talk_sizes))
def live_s(request):
    """A live backend, and S of the talk's shape."""
    return _require(request.param[0]), request.param[1]
