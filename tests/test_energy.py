"""--energy: how joules are read from the driver's library, with a fake one, and who refuses it.
(What a GPU's own counter says needs that GPU.)"""

import re
import shutil
import subprocess

import pytest

from suite import CPU, GPU, NO_GPU, ROOT, SKIPPED, USAGE, assert_one_line

# A board that takes 400 W, and whose counter moves every 50 ms. The device is a number by its name.
NVML = r"""
#include <chrono>
#include <cstring>
extern "C" {
int nvmlInit_v2() { return 0; }
const char* nvmlErrorString(int status) { return status == 3 ? "Not Supported" : "Not Found"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
    *device = const_cast<char*>(id);
    return std::strcmp(id, "absent") == 0 ? 6 : 0;
}
#ifndef OLD
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
    using namespace std::chrono;
    const auto ms = duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
    const char* const id = static_cast<const char*>(device);
    *millijoules = std::strcmp(id, "stuck") == 0 ? 7 : 400ull * (ms / 50 * 50);
    return std::strcmp(id, "old") == 0 ? 3 : 0;
}
#endif
}
"""

# Counts the energy of launches that take 1 ms, ten at a time.
PROGRAM = r"""
#include <chrono>
#include <cstdio>
#include <thread>
#include "demo/energy.hpp"
int main(int, char** argv) {
    demo::EnergyCounter counter(argv[1]);
    if (!counter.why_not().empty()) return std::puts(counter.why_not().c_str()), 0;
    const demo::Energy energy = demo::energy_of(counter, 0.3, [] {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return 10;
    }, 0.5);
    std::printf("%.3f J, %.1f W\n", energy.joules, energy.watts);
}
"""


@pytest.fixture(scope="module", name="count")
def fixture_count(tmp_path_factory):
    """A function: what the program says of a GPU, with one of the fake libraries, or with none."""
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    folder = tmp_path_factory.mktemp("energy")

    def build(text, target, *flags):
        target.parent.mkdir(exist_ok=True)
        source = folder / "source.cpp"
        source.write_text(text)
        subprocess.run(["g++", "-std=c++20", *flags, source, "-o", target], check=True)

    build(NVML, folder / "new/libnvidia-ml.so.1", "-shared", "-fPIC")
    build(NVML, folder / "old/libnvidia-ml.so.1", "-shared", "-fPIC", "-DOLD")
    build(PROGRAM, folder / "program", f"-I{ROOT}/include", "-ldl")

    def count(library, gpu):
        done = subprocess.run([folder / "program", gpu], capture_output=True, text=True, check=True,
                              env={"LD_LIBRARY_PATH": str(folder / library)})
        return done.stdout.strip()

    return count


def test_joules_are_those_between_two_steps_of_the_counter(count):
    joules, watts = map(float, re.fullmatch(r"(.*) J, (.*) W", count("new", "fine")).groups())
    assert watts == pytest.approx(400, rel=0.1)
    assert 0.4 <= joules < 0.6  # of 1 ms, and whatever the sleep took longer


def test_a_counter_that_stands_still_gives_nothing(count):
    assert count("new", "stuck") == "0.000 J, 0.0 W"


@pytest.mark.parametrize("library, gpu, reason", [
    ("new", "old", "NVML says: Not Supported"),
    ("new", "absent", "NVML says: Not Found"),
    ("old", "fine", "this driver's NVML has no counter of energy"),
])
def test_without_a_counter_a_reason_is_given(count, library, gpu, reason):
    assert count(library, gpu) == reason


def test_without_the_driver_a_reason_is_given(count):
    if GPU.why_not():
        assert count("none", "fine").startswith("libnvidia-ml.so.1, a part of the driver, is not")


def test_the_simulator_has_no_energy():
    done = CPU.run("1_matmul_basic", "32", "--energy")
    assert (done.returncode, done.stdout) == (SKIPPED, "")
    assert_one_line(done.stderr, "1_matmul_basic")


def test_energy_needs_more_than_one_launch(backend):
    done = backend.run("1_matmul_basic", "32", "--energy", "--once", env=NO_GPU)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "1_matmul_basic")
