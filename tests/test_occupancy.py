"""scripts/occupancy.py: what an SM of a GPU holds, and how many blocks run at once."""

import pytest

import fakes
from fakes import script
from suite import USAGE, assert_one_line

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def said(*words, env=NO_GPU):
    """What it prints, without the columns."""
    done = script("occupancy.py", *words, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 79
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("words, expected", [
    (["4090"], "- RTX 4090 8.9 128 1536 24 100 99 an SM has"),  # not the laptop's
    (["A30", "--gpu", "PCIe"], "A100 80GB PCIe 8.0 108 2048"),
    (["h200", "--block", "1024", "--grid", "16384"], "16,384 blocks, 16,777,216 threads."),
    (["h200", "--block", "1024", "--grid", "16384"], "H200 2 32 100% 2 x 132 = 264 62.1"),
    (["H200", "--block", "1024", "--shared", "8192"], "H200 2 32 25 100% 2 x 132 = 264"),
    (["4090 laptop", "--block", "1024", "--shared", "8192"], "Laptop 1 24 11 66% 1 x 76 = 76"),
    (["T4", "--block", "256", "--registers", "300"],
     "Tesla T4 4 16 1 25% 1 x 40 = 40 regs: the compiler stops at 255 a thread, and spills"),
    (["T4", "--block", "1024", "--registers", "65", "--grid", "9"], "T4 1 16 0 0% 0 x 40 = 0 -")])
def test_a_listed_gpu(words, expected):
    assert expected in said("--gpu", *words)


def test_the_gpu_at_hand(tmp_path):
    text = said()
    assert text.startswith('no GPU here: --gpu "RTX 4090"')
    assert "A10, A40, RTX 30 8.6 - 1536 16 100 99" in text
    assert "RTX 50 1 24 66% 1 x SMs" in said("--block", "1024")
    driver = fakes.driver(tmp_path)
    assert "Fake GPU 8.9 7 1536" in said(env=driver)
    assert "Fake GPU 1 24 66% 1 x 7 = 7" in said("--block", "1024", env=driver)


@pytest.mark.parametrize("words, expected", [
    ("--gpu 9090", "no GPU '9090'"), ("--grid 4", "--block"),
    ("--block 1025", "1025")])
def test_what_is_wrong_is_said_in_one_line(words, expected):
    done = script("occupancy.py", *words.split(), env=NO_GPU)
    assert (done.returncode, done.stdout) == (USAGE, "") and expected in done.stderr
    assert_one_line(done.stderr, "occupancy.py")
