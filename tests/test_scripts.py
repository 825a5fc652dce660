"""The scripts: their usage, how they take what goes wrong, and the tables they print. Fake programs
and a fake nvidia-smi stand in for a machine with GPUs."""

import ast
import csv
import functools
import glob
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys

import pytest

from suite import COLUMNS, FAILED, PROGRAMS, ROOT, SKIPPED, USAGE, assert_one_line

sys.path.insert(0, str(ROOT / "scripts"))
import datasheet  # noqa: E402
import programs  # noqa: E402
import table  # noqa: E402

SCRIPTS = ["run.sh", "test.sh", "compare_gpus.sh", "table.py", "collect.py", "plot.py", "report.sh",
           "update_readme.py", "inspect.sh", "profile.sh", "profile_report.py", "step.sh",
           "count.sh", "ncu_counts.py", "programs.py"]


def script(name, *arguments, root=ROOT, cwd=None, env=None):
    path = root / "scripts" / name
    command = [sys.executable] if name.endswith(".py") else ["bash"]
    return subprocess.run(command + [str(path)] + [str(a) for a in arguments], cwd=cwd or root,
                          capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                          env={**os.environ, **(env or {})})


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name):
    done = script(name, "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert name in done.stdout


def test_compare_has_one_help():
    done = script("compare_gpus.sh", "--table", "--help")
    assert done.returncode == 0 and done.stdout == script("compare_gpus.sh", "--help").stdout


def test_collect_names_a_missing_folder(tmp_path):
    done = script("collect.py", tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "collect.py")


@pytest.mark.parametrize("name, arguments", [
    ("run.sh", ["--bogus"]), ("run.sh", ["64", "96"]), ("run.sh", ["33"]), ("run.sh", ["abc"]),
    ("run.sh", [""]),
    ("compare_gpus.sh", ["--bogus"]), ("compare_gpus.sh", ["64"]),
    ("compare_gpus.sh", ["--sizes", "33"]), ("compare_gpus.sh", ["--sizes", "64,abc"]),
    ("compare_gpus.sh", ["--sizes", "0"]), ("compare_gpus.sh", ["--sizes", ""]),
    ("compare_gpus.sh", ["--talk", "17"]), ("compare_gpus.sh", ["--talk"]),
    ("compare_gpus.sh", ["--rounds", "0"]), ("compare_gpus.sh", ["--rounds", "many"]),
    ("compare_gpus.sh", ["--programs", "bogus"]), ("compare_gpus.sh", ["--programs", ".*"]),
    ("compare_gpus.sh", ["--quick", "--sizes", "64"]), ("compare_gpus.sh", ["--table"]),
    ("compare_gpus.sh", ["--quick", "--table", "x.csv"]),
    ("compare_gpus.sh", ["--table", "--sizes", "many", "x.csv"]),
    ("compare_gpus.sh", ["--table", "--csv", "--markdown", "x.csv"]),
    ("compare_gpus.sh", ["--table", "--bogus", "x.csv"]),
    ("plot.py", []), ("plot.py", ["--bogus", "x.csv"]), ("plot.py", ["--size", "many", "x.csv"]),
    ("report.sh", []), ("report.sh", ["--bogus", "x.csv"]), ("report.sh", ["--out"]),
    ("table.py", []), ("table.py", ["bogus", "x.csv"]), ("table.py", ["run"]),
    ("update_readme.py", ["--bogus"]), ("collect.py", []), ("ncu_counts.py", ["table", "x.csv"]),
    ("inspect.sh", []), ("inspect.sh", ["--bogus"]), ("inspect.sh", ["bogus"]),
    ("inspect.sh", ["bonus"]), ("compare_gpus.sh", ["--programs", "bonus"]),
    ("programs.py", []), ("programs.py", ["bogus", "x"]), ("profile.sh", ["99"]),
    ("programs.py", ["show", "x", "many", "1"]), ("programs.py", ["measure", "--sizes", "x", "y"]),
    ("inspect.sh", ["2", "a", "b"]), ("inspect.sh", ["2", "--ptx", "--sass"]),
    ("inspect.sh", ["2", "--diff", "a"]), ("inspect.sh", ["2", "a", "--diff", "b", "c"]),
    ("inspect.sh", ["2", "--both", "--diff", "b", "c"]), ("inspect.sh", ["2", "--block", "0"]),
    ("inspect.sh", ["2", "--block", "1025"]), ("inspect.sh", ["2", "--shared", "many"]),
    ("inspect.sh", ["2", "a", "--all"]),
], ids=lambda value: value if isinstance(value, str) else " ".join(value) or "none")
def test_bad_arguments_end_with_one_line(name, arguments):
    done = script(name, *arguments)
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert_one_line(done.stderr, "table.py" if arguments[:1] == ["--table"] and arguments[1:]
                    else name)


# --- Tables -----------------------------------------------------------------------------------


def row(program="1_matmul_basic", kernel="matmul_basic", gpu="GPU A", sm="90", dtype="fp32",
        shape="square", n="1024", median_ms="1.000000", spread_pct="0.50", tflops="2.000",
        gb_per_s="", verified="yes", error_of_bound="0.2", launches="1", temp_bytes="0",
        moved_bytes="", least_bytes="12582912", role="ours"):
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
                       temp_bytes="", least_bytes="", role=""), "", "", "", "", note)


CLOCKS = "sm_mhz temperature_c power_w throttled note".split()


def write_csv(path, *rows, comments=(), columns=COLUMNS):
    lines = [f"# {comment}" for comment in comments] + [",".join(columns)] + list(rows)
    path.write_text("\n".join(lines) + "\n")
    return path


def compare(*files, cwd=None):
    return script("compare_gpus.sh", "--table", *files, cwd=cwd)


def table_lines(text):
    """The lines of a printed table, as lists of its cells."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


def test_compare_puts_two_gpus_side_by_side(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(), row(n="2048", tflops="4.000"),
                  row("6_gating_fused", "fused_tiled", dtype="fp16", shape="talk", n="512",
                      tflops="50.00", gb_per_s="1000"),
                  comments=["GPU: GPU A", "protocol: 1"])
    b = write_csv(tmp_path / "b.csv", row(gpu="GPU B", tflops="5.000"),
                  row("2_matmul_sharedmem", "matmul_sharedmem", gpu="GPU B", tflops="8.000"),
                  comments=["GPU: GPU B", "protocol: 1"])
    done = compare("a.csv", "b.csv", cwd=tmp_path)  # names are relative to the caller
    assert done.returncode == 0
    assert done.stderr == ""
    head, _, *lines = [" ".join(cells) for cells in table_lines(done.stdout)]
    assert head == "program kernel data size unit GPU A GPU B ratio"
    assert sorted(lines) == [
        "1_matmul_basic matmul_basic fp32 N=1024 TFLOP/s 2.00 5.00 2.50x",
        "1_matmul_basic matmul_basic fp32 N=2048 TFLOP/s 4.00 missing -",
        "2_matmul_sharedmem matmul_sharedmem fp32 N=1024 TFLOP/s missing 8.00 -",
        "6_gating_fused fused_tiled fp16 S=512 GB/s 1000 missing -",
    ]


def test_compare_tells_alike_gpus_apart_by_their_files(tmp_path):
    a = write_csv(tmp_path / "h200-0.csv", row(), comments=["GPU: H200"])
    b = write_csv(tmp_path / "h200-1.csv", row(), comments=["GPU: H200"])
    head = compare(a, b).stdout.splitlines()[0]
    assert "h200-0.csv" in head and "h200-1.csv" in head
    (tmp_path / "other").mkdir()
    c = write_csv(tmp_path / "other/h200-0.csv", row(), comments=["GPU: H200"])
    done = compare(a, c)
    assert str(a) in done.stdout.splitlines()[0] and str(c) in done.stdout.splitlines()[0]
    assert f"{a} -> {c}: 1 of 1 steady" in done.stdout


def test_compare_shows_no_figure_for_a_wrong_or_untimed_result(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(), row(n="2048"))
    b = write_csv(tmp_path / "b.csv", row(gpu="GPU B", verified="no", median_ms="", tflops=""),
                  row(gpu="GPU B", n="2048", verified="no", tflops="999.0"))
    done = compare(a, b)
    assert done.returncode == 0
    assert [line[-2:] for line in table_lines(done.stdout)[2:]] == [["wrong", "-"], ["wrong", "-"]]


def test_compare_says_why_a_program_has_no_figure(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(), row("7_gelu", "fused", dtype="fp16"),
                  row("8_softmax", "fused", dtype="fp16"), comments=["GPU: A"])
    b = write_csv(tmp_path / "b.csv", stopped(),
                  stopped("7_gelu", dtype="fp16", verified="skipped"),
                  stopped("8_softmax", dtype="fp32"), columns=COLUMNS + CLOCKS,
                  comments=["GPU: B"])
    done = compare(a, b)
    assert done.returncode == 0, done.stderr
    assert [line[:2] + line[-2:] for line in table_lines(done.stdout)[2:]] == [
        ["1_matmul_basic", "matmul_basic", "failed", "-"],
        ["7_gelu", "fused", "skipped", "-"],
        ["8_softmax", "fused", "missing", "-"],  # what failed was the other data type
        ["8_softmax", "-", "failed", "-"],
    ]


def test_compare_chooses_sizes(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(), row(n="2048"), row(n="4096"),
                  row("5_gating_unfused", shape="talk", n="2048"), row(shape="2048x7", n="2048"))
    sizes = {
        ("--sizes", "2048"): ["N=2048"],
        ("--sizes", "1024,4096"): ["N=1024", "N=4096"],
        ("--talk", "2048"): ["S=2048"],
        ("--sizes", "4096", "--talk", "2048"): ["N=4096", "S=2048"],
        (): ["N=1024", "N=2048", "N=4096", "S=2048", "2048x7"],
    }
    for arguments, expected in sizes.items():
        done = compare(*arguments, a)
        assert [line[3] for line in table_lines(done.stdout)[2:]] == expected
    done = compare("--sizes", "64", a)
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "table.py")


def test_compare_writes_markdown_and_csv(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(gpu='"GPU A, 80 GB"'))
    b = write_csv(tmp_path / "b.csv", row(n="2048"), comments=["GPU: B|C"])
    assert compare("--markdown", a, b).stdout.splitlines() == [
        r"| program | kernel | data | size | unit | GPU A, 80 GB | B\|C | ratio |",
        "|---|---|---|---|---|---:|---:|---:|",
        "| 1_matmul_basic | matmul_basic | fp32 | N=1024 | TFLOP/s | 2.00 | missing | - |",
        "| 1_matmul_basic | matmul_basic | fp32 | N=2048 | TFLOP/s | missing | 2.00 | - |",
    ]
    lines = list(csv.reader(compare("--csv", a, b).stdout.splitlines()))
    assert lines[0][-3:] == ["GPU A, 80 GB", "B|C", "ratio"]
    assert lines[1] == ["1_matmul_basic", "matmul_basic", "fp32", "N=1024", "TFLOP/s", "2.00",
                        "missing", "-"]


def test_compare_flags_what_the_datasheet_rules_out(tmp_path):
    rows = [row("4_matmul_cublas", "cublas_fp16", dtype="fp16", tflops="995.0"),
            row("4_matmul_cublas", "cublas_fp32", tflops="66.0"),
            row("7_gelu", "copy", tflops="", gb_per_s="4900", role="yardstick")]
    a = write_csv(tmp_path / "a.csv", *rows, comments=["GPU: NVIDIA H200"])
    b = write_csv(tmp_path / "b.csv", *rows, comments=["GPU: NVIDIA H9000"])  # nobody knows it
    table, notes = compare(a, b).stdout.split("\n\n")
    assert [line[-3:-1] for line in table_lines(table)[2:]] == [
        ["995!", "995"], ["66.0", "66.0"], ["4900!", "4900"]]
    assert len(notes.splitlines()) == 2
    assert "cublas_fp16 N=1024: 995 TFLOP/s is above the datasheet's 989.4" in notes
    assert "copy N=1024: 4900 GB/s is above the datasheet's 4800" in notes


def test_compare_says_how_two_runs_of_one_gpu_differ(tmp_path):
    first = [clocked(row(tflops="100.0")), clocked(row(n="2048", tflops="100.0"), "1980"),
             clocked(row(n="4096", tflops="100.0")), clocked(row(n="8192", tflops="100.0"))]
    second = [clocked(row(tflops="102.9")),
              clocked(row(n="2048", tflops="96.0"), "1755", "61", "700", "power cap 90%"),
              clocked(row(n="4096", tflops="50.0", spread_pct="2.50")),  # noisy: says nothing
              clocked(row(n="8192", tflops="100.0", verified="no"))]
    a = write_csv(tmp_path / "a.csv", *first, comments=["GPU: X"], columns=COLUMNS + CLOCKS)
    b = write_csv(tmp_path / "b.csv", *second, comments=["GPU: X"], columns=COLUMNS + CLOCKS)
    done = compare(a, b)
    assert done.returncode == 0
    assert done.stdout.split("\n\n")[1].splitlines() == [
        "a.csv -> b.csv: 1 of 2 steady results within 3%, but",
        "  1_matmul_basic matmul_basic fp32 N=2048: -4.0%; SM clock 1980 -> 1755 MHz; "
        "power 600 -> 700 W; temperature 50 -> 61 C; throttled: no -> power cap 90%",
    ]
    assert "1 of 1 steady" in compare("--sizes", "1024", a, b).stdout
    assert "a.csv -> b.csv: 1 of 2 steady" in compare("--csv", a, b).stderr


def test_memory_bound_rows_are_compared_in_gb_per_s(tmp_path):
    a = write_csv(tmp_path / "a.csv", row("7_gelu", "fused", tflops="4.2", gb_per_s="4000"),
                  row("7_gelu", "copy", tflops="", gb_per_s="4200", role="yardstick"))
    b = write_csv(tmp_path / "b.csv", row("7_gelu", "fused", tflops="0.3", gb_per_s="276.8"),
                  row("7_gelu", "copy", tflops="", gb_per_s="300", role="yardstick"),
                  comments=["GPU: GPU B"])
    simulator = write_csv(tmp_path / "c.csv", row("7_gelu", "fused", sm="", tflops="0.001"))
    assert [line[4:] for line in table_lines(compare(a, b).stdout)[2:]] == [
        ["GB/s", "4000", "277", "0.0692x"], ["GB/s", "4200", "300", "0.0714x"]]
    done = compare(simulator, a)  # it counts no bandwidth
    assert table_lines(done.stdout)[2][4:] == ["GB/s", "-", "4000", "-"]


def test_a_file_from_the_cpu_lane_and_one_of_another_gpus_name_are_second_columns(tmp_path):
    program = ROOT / "cpu/1_matmul_basic"
    lane = tmp_path / "lane.csv"
    if program.exists():
        lane.write_text(subprocess.run([program, "96", "--csv"], capture_output=True,
                                       text=True).stdout)
    else:
        write_csv(lane, row(gpu='"CPU simulation"', sm="", n="96", tflops="0.001"))
    measured = write_csv(tmp_path / "measured.csv", row(), row(n="2048"),
                         comments=["GPU: NVIDIA H200"])
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(measured.read_text().replace("# GPU: NVIDIA H200", "# GPU: NVIDIA H300"))
    done = compare(measured, lane, renamed)
    assert done.returncode == 0, done.stderr
    head, _, *lines = table_lines(done.stdout)
    assert head[-5:] == ["NVIDIA H200", "CPU simulation", "ratio", "NVIDIA H300", "ratio"]
    assert {line[-1] for line in lines if line[-5] != "missing"} <= {"1.00x", "-"}
    (own,) = [line for line in lines if line[3] == "N=96"]
    assert own[-5] == own[-2] == "missing" and float(own[-4]) > 0
    assert "within" not in done.stdout  # only runs on the same kind of GPU should agree


def test_compare_warns_of_different_protocols(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(), comments=["protocol: 1"])
    b = write_csv(tmp_path / "b.csv", row(gpu="GPU B"), comments=["protocol: 2"])
    done = compare(a, b)
    assert done.returncode == 0
    assert "not comparable" in done.stderr and "1, 2" in done.stderr


def test_compare_reads_files_that_were_mailed(tmp_path):
    a = write_csv(tmp_path / "a.csv", row(gpu='"GPU ""A"", 80 GB"'), comments=["date: 2026-01-01"])
    text = a.read_text()
    a.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    done = compare(a)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].endswith('GPU "A", 80 GB')


def test_compare_finds_columns_by_name(tmp_path):
    columns = ["new"] + COLUMNS[::-1]
    cells = ["7"] + row().split(",")[::-1]
    done = compare(write_csv(tmp_path / "a.csv", ",".join(cells), columns=columns))
    assert done.returncode == 0
    assert "2.00" in done.stdout


@pytest.mark.parametrize("content", [
    b"",
    b"\n\n",
    b"# GPU: x\n",
    b"hello\nworld\n",
    b"\xff\xfe\x00binary\x00",
    ",".join(COLUMNS).encode() + b"\n",
    (",".join(COLUMNS) + "\n" + row().rsplit(",", 1)[0]).encode(),
    (",".join(COLUMNS) + "\n" + row() + ",extra").encode(),
    (",".join(COLUMNS) + "\n" + row(tflops="nan")).encode(),
    (",".join(COLUMNS) + "\n" + row(tflops="-inf")).encode(),
    (",".join(COLUMNS) + "\n" + row(median_ms="fast")).encode(),
    (",".join(COLUMNS) + "\n" + row(launches="six")).encode(),
    (",".join(COLUMNS) + "\n" + row(n="1e3")).encode(),
    (",".join(COLUMNS) + "\n" + row(verified="maybe")).encode(),
    (",".join(COLUMNS) + "\n" + row(role="rival")).encode(),
    (",".join(COLUMNS) + "\n" + row(role="")).encode(),
    (",".join(COLUMNS[:-1]) + "\n" + row().rsplit(",", 1)[0]).encode(),
    (",".join(COLUMNS) + "\n" + '"unfinished').encode(),
    ("# rows: 3\n" + ",".join(COLUMNS) + "\n" + row() + "\n").encode(),
    ("# rows: 1\n" + ",".join(COLUMNS) + "\n" + row() + "\n" + row(n="2048")[:60]).encode(),
], ids=["empty", "blank", "comment", "text", "binary", "no-rows", "short-row", "long-row", "nan",
        "inf", "word", "launches", "size", "verdict", "role", "no-role", "missing-column", "quote",
        "rows-lost", "row-cut"])
def test_a_broken_file_is_named_in_one_line(tmp_path, content):
    good = write_csv(tmp_path / "good.csv", row())
    broken = tmp_path / "broken.csv"
    broken.write_bytes(content)
    done = compare(good, broken)
    assert done.returncode == USAGE
    assert done.stdout == ""
    assert_one_line(done.stderr, "table.py")
    assert "broken.csv" in done.stderr


@pytest.mark.parametrize("name", ["table.py", "plot.py", "report.py", "profile_report.py",
                                  "update_readme.py"])
def test_a_pager_may_stop_reading(name):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, ROOT / "scripts" / name, "--help"], stdout=writing,
                          stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")


def test_a_missing_file_is_named_in_one_line(tmp_path):
    done = compare(tmp_path / "nowhere.csv")
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "table.py")
    assert "nowhere.csv" in done.stderr


def test_one_runs_table_has_a_heading_for_each_program(tmp_path):
    gelu = dict(program="7_gelu", dtype="fp16", tflops="4.0")
    a = write_csv(tmp_path / "a.csv", row(median_ms="0.2"), row(n="2048", spread_pct="2.50"))
    b = write_csv(tmp_path / "b.csv", row(kernel="fused", gb_per_s="4000", **gelu),
                  row(kernel="slow", gb_per_s="4", **dict(gelu, verified="no")),
                  row("7_gelu", "copy", dtype="fp16", sm="", tflops="", role="yardstick"),
                  row("bonus_matmul_register_tiled", "matmul_A_stationary", n="16384",
                      tflops="0.00312", spread_pct="3"))
    text = script("table.py", "run", a, b).stdout
    lines = table_lines(text)
    assert lines == [
        ["kernel", "data", "size", "time/ms", "rate", "verified"], [lines[1][0]],
        ["1_matmul_basic"],
        ["matmul_basic", "fp32", "N=1024", "0.200", "2.00 TFLOP/s", "yes"],
        ["matmul_basic", "fp32", "N=2048", "1.00", "2.00 TFLOP/s", "yes, noisy"],
        ["7_gelu"],
        ["fused", "fp16", "N=1024", "1.00", "4000 GB/s", "yes"],
        ["slow", "fp16", "N=1024", "1.00", "4.00 GB/s", "wrong"],
        ["copy", "fp16", "N=1024", "(CPU) 1.00", "yes"],  # on the simulator
        ["bonus_matmul_register_tiled"],
        ["matmul_A_stationary", "fp32", "N=16384", "1.00", "0.00312 TFLOP/s", "yes, noisy"],
    ]
    assert max(map(len, text.splitlines())) <= 79


def lessons_table(tmp_path, *rows):
    """What `table.py lessons` prints of these rows: its text, and its lines as lists of cells."""
    done = script("table.py", "lessons", write_csv(tmp_path / "a.csv", *rows))
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 79
    return done.stdout, [cells for cells in table_lines(done.stdout) if cells[0].strip("-")]


def gating(kernel, ms, role, program="6_gating_fused", tflops="100", **more):
    return row(program, kernel, dtype="fp16", median_ms=ms, tflops=tflops, role=role, **more)


def test_a_lessons_row_has_its_best_kernel_and_below_it_the_record(tmp_path):
    talk = dict(shape="talk", n="512", gb_per_s="4000")
    text, lines = lessons_table(
        tmp_path, row(median_ms="46.64", spread_pct="2.5"),
        gating("six_kernels", "0.8", "chain"), gating("library_best", "0.5", "library"),
        gating("fused_basic", "8", "ours"), gating("fused_wmma", "1", "ours", tflops="428"),
        gating("fused_hopper", "0.4", "record"),
        gating("six_kernels", "4", "chain", **talk), gating("library_best", "2", "library", **talk),
        gating("copy", "0.9", "yardstick", **{**talk, "tflops": ""}),
        gating("fused_wmma", "1", "ours", **talk),
        gating("chain", "3", "chain", program="10_add_mul_activation", gb_per_s="1"),
        gating("fused_vectorized", "1", "ours", program="10_add_mul_activation", gb_per_s="3844"))
    assert lines == [
        ["GPU A, N=1024", "speed-up over"],
        ["lesson", "kernel", "time/ms", "rate", "chain", "library"],
        ["1_matmul_basic", "matmul_basic", "~46.6", "2.00 TFLOP/s", "-", "-"],
        ["6_gating_fused", "fused_wmma", "1.00", "428 TFLOP/s", "0.800x", "0.500x"],
        ["record", "fused_hopper", "0.400", "100 TFLOP/s", "2.00x", "1.25x"],
        ["talk S=512", "fused_wmma", "1.00", "4000 GB/s", "4.00x", "2.00x"],
        ["10_add_mul_activation", "fused_vectorized", "1.00", "3844 GB/s", "3.00x", "-"],
        *([line] for line in text.splitlines()[-4:])]
    assert text.splitlines()[-1] == "results: all verified"
    assert "\nrecord: " in text and "\n~: noisy" in text


def test_a_lessons_table_explains_only_what_it_shows(tmp_path):
    name = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
    text, _ = lessons_table(tmp_path, row(gpu=name, n="16384"))
    assert text.startswith(f"{name}, N=16384  speed-up over\n")
    assert "record" not in text and "~" not in text


def test_a_lesson_without_kernels_of_ours_shows_the_best_that_it_calls(tmp_path):
    call = functools.partial(row, "4_matmul_cublas", role="library")
    _, lines = lessons_table(
        tmp_path, call("cublas_fp32", median_ms="2", tflops="50"),
        call("cublas_fp16", dtype="fp16", median_ms="0.2", tflops="700"),
        gating("six_kernels", "3", "chain", program="5_gating_unfused"),
        gating("library_best", "2", "library", program="5_gating_unfused"))
    assert lines[2:4] == [  # fp32 takes no part: other numbers, other work
        ["4_matmul_cublas", "cublas_fp16", "0.200", "700 TFLOP/s", "-", "-"],
        ["5_gating_unfused", "library_best", "2.00", "100 TFLOP/s", "1.50x", "-"]]


def test_a_lessons_rival_is_the_best_of_the_library_but_never_a_copy(tmp_path):
    _, lines = lessons_table(
        tmp_path, gating("mine", "2", "ours"), gating("cublas", "1", "yardstick"),
        gating("slow_call", "3", "library"), gating("copy", "0.1", "yardstick", tflops=""))
    assert lines[2][-2:] == ["-", "0.500x"]


def test_a_wrong_kernel_is_a_row_of_its_own_and_never_the_best(tmp_path):
    text, lines = lessons_table(
        tmp_path, gating("six_kernels", "1", "chain", verified="no"),
        gating("fused_basic", "2", "ours"), gating("fused_wmma", "0.1", "ours", verified="no"),
        gating("fused_hopper", "0.2", "record", verified="no"),
        row("7_gelu", "fused", verified="no"))
    assert lines[2:7] == [
        ["6_gating_fused", "fused_basic", "2.00", "100 TFLOP/s", "-", "-"],
        ["six_kernels", "-", "wrong", "-", "-"],
        ["fused_wmma", "-", "wrong", "-", "-"],
        ["record", "fused_hopper", "-", "wrong", "-", "-"],
        ["7_gelu", "fused", "-", "wrong", "-", "-"]]
    assert text.endswith("\nresults: 4 of 5 WRONG\n")


def test_a_lessons_row_on_the_simulator_has_kernels_and_no_times(tmp_path):
    cpu = dict(gpu="CPU simulation", sm="", median_ms="7.77")
    names = [f"kernel_number_{i}" for i in range(6)]
    text, lines = lessons_table(
        tmp_path, row(**cpu), *(gating(name, role="ours", ms="7.77", gpu="CPU simulation", sm="")
                                for name in names),
        gating("copy", "7.77", "yardstick", gpu="CPU simulation", sm=""),
        gating("fused", "7.77", "ours", shape="talk", n="16", gpu="CPU simulation", sm="",
               verified="no"))
    assert "7.77" not in text and "copy" not in text and text.startswith("CPU simulation, N=1024;")
    assert lines[1:] == [
        ["lesson", "kernels that ran"], ["1_matmul_basic", "matmul_basic"],
        ["6_gating_fused", ", ".join(names[:3]) + ","], [", ".join(names[3:])],
        ["talk S=16", "fused (WRONG)"], ["results: 1 of 9 WRONG"]]


@pytest.mark.parametrize("rows, text", [
    ([row(tflops="0.2")], "0.200 TFLOP/s (matmul_basic)"),
    ([row(kernel="a", tflops="3"), row(kernel="b", tflops="2", role="record"),
      row(kernel="c", tflops="9", role="library"), row(kernel="d", tflops="8", role="chain"),
      row(kernel="e", tflops="7", role="yardstick")], "3.00 TFLOP/s (a, the best of 2)"),
    ([row(kernel="a", tflops="1", role="chain"), row(kernel="b", tflops="2", role="library"),
      row(kernel="c", tflops="9", role="yardstick")], "2.00 TFLOP/s (b, the best of 2)"),
    ([row(kernel="a", tflops="", gb_per_s="4100", role="yardstick")], "4100 GB/s (a)"),
    ([row(kernel="a", tflops="300"), row(kernel="b", tflops="9", gb_per_s="4000"),
      row(kernel="c", tflops="", gb_per_s="4200", role="yardstick")],
     "300 TFLOP/s (a, the best of 2)"),
], ids=["one", "ours", "no-own", "copy", "units"])
def test_one_line_names_the_best_kernel_of_the_programs_own(tmp_path, rows, text):
    done = script("table.py", "summary", write_csv(tmp_path / "a.csv", *rows))
    assert (done.returncode, done.stdout) == (0, text + "\n")


@pytest.mark.parametrize("value, text", [
    (None, "-"), (0.0, "0"), (0.0041, "0.00410"), (0.2, "0.200"), (0.9996, "1.00"), (3.06, "3.06"),
    (9.999, "10.0"), (50.64, "50.6"), (99.96, "100"), (716.4, "716"), (4812.3, "4812"),
])
def test_figures_have_three_significant_digits(value, text):
    assert table.number(value) == text


def test_data_sheets_are_those_of_the_programs():
    peaks = datasheet.peaks()
    assert peaks["NVIDIA H200"] == {"fp32": 67, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4,
                                    "GB/s": 4800}
    assert peaks["Tesla T4"] == {"fp32": 8.1, "fp16": 65, "GB/s": 320}  # it has no other types
    text = (ROOT / "include/demo/data_sheets.inc").read_text()
    assert len(peaks) == len(re.findall("^DATA_SHEET", text, re.MULTILINE))


# --- README -----------------------------------------------------------------------------------


@pytest.fixture
def readme(tmp_path):
    """A project with a README and one file of results. Returns its root."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "results").mkdir()
    write_csv(tmp_path / "results/h200.csv", row(tflops="3.210"),
              row("6_gating_fused", "fused_tiled", dtype="fp16", shape="talk", n="1024",
                  tflops="345.0", gb_per_s="4100"),
              comments=["GPU: NVIDIA H200", "driver: 580", "toolkit: 13.0", "date: 2026-01-01"])
    (tmp_path / "README.md").write_text(
        "# Title\nbefore\n<!-- results:begin -->\nold\n<!-- results:end -->\nafter\n")
    return tmp_path


def test_update_readme_writes_between_the_markers_alone(readme):
    assert script("update_readme.py", "--check", root=readme).returncode == 1
    assert script("update_readme.py", root=readme).returncode == 0
    text = (readme / "README.md").read_text()
    assert text.startswith("# Title\nbefore\n<!-- results:begin -->\n")
    assert text.endswith("\n<!-- results:end -->\nafter\n")
    assert "old" not in text
    assert "NVIDIA H200" in text and "3.21" in text and "345" in text and "4100" in text
    assert script("update_readme.py", "--check", root=readme).returncode == 0
    assert script("update_readme.py", root=readme).returncode == 0
    assert (readme / "README.md").read_text() == text  # once more changes nothing


def test_update_readme_shows_what_fusion_saved(readme):
    def gelu(kernel, n, ms, launches, moved, **more):
        return row("7_gelu", kernel, n=n, median_ms=ms, launches=launches, moved_bytes=moved,
                   gb_per_s="100", **more)

    chain, library = {"role": "chain"}, {"role": "library"}

    write_csv(readme / "results/h200.csv", row(),
              gelu("nine", "1024", "0.5", "9", "9000000000", **chain),
              gelu("fused", "1024", "0.3", "1", "1000000000"),
              gelu("nine", "2048", "8.0", "9", "36000000000", **chain),
              gelu("calls", "2048", "5.0", "2", "8000000000", **library),
              gelu("fused", "2048", "4.0", "1", "4000000000"),
              gelu("fused_vectorized", "2048", "2.0", "1", "4000000000"),
              gelu("faster_but_wrong", "2048", "1.0", "1", "4000000000", verified="no"),
              gelu("not_counted", "2048", "0.1", "", "4000000000"),
              gelu("copy", "2048", "1.0", "1", "4000000000", role="yardstick"))
    assert script("update_readme.py", root=readme).returncode == 0
    _, _, saved = (readme / "README.md").read_text().partition("What fusion saved")
    lines = [line for line in saved.splitlines() if line.startswith("| `")]
    assert lines == ["| `7_gelu` | nine -> fused_vectorized | fp32 | N=2048 | 9 -> 1 "
                     "| 36.0 -> 4.00 | 8.00 -> 2.00 | 4.00x |",
                     "| `7_gelu` | calls -> fused_vectorized | fp32 | N=2048 | 2 -> 1 "
                     "| 8.00 -> 4.00 | 5.00 -> 2.00 | 2.50x |"]


def test_update_readme_check_notices_new_results_and_changes_nothing(readme):
    script("update_readme.py", root=readme)
    before = (readme / "README.md").read_text()
    write_csv(readme / "results/h200.csv", row(tflops="9.870"))
    done = script("update_readme.py", "--check", root=readme)
    assert done.returncode == 1
    assert_one_line(done.stderr, "update_readme.py")
    assert (readme / "README.md").read_text() == before


@pytest.mark.parametrize("damage", ["markers", "results", "broken"])
def test_update_readme_refuses_what_it_cannot_do(readme, damage):
    if damage == "markers":
        (readme / "README.md").write_text("# Title\n")
    elif damage == "results":
        shutil.rmtree(readme / "results")
    else:
        (readme / "results/b.csv").write_text("nonsense\n")
    before = (readme / "README.md").read_text()
    done = script("update_readme.py", root=readme)
    assert done.returncode == USAGE
    assert_one_line(done.stderr, "update_readme.py")
    assert (readme / "README.md").read_text() == before


def test_every_column_is_explained():
    text = (ROOT / "docs/measuring.md").read_text(encoding="utf-8")
    table = re.search(r"\n\| column \|.*?\n\n", text, re.DOTALL)[0]
    words = {word for cell in re.findall(r"^\| `([^`]*)`", table, re.MULTILINE)
             for word in cell.split(", ")}
    assert words == set(COLUMNS + CLOCKS)


def test_this_readme_shows_what_results_holds():
    if not glob.glob(str(ROOT / "results/*.csv")):
        pytest.skip("results/ holds no measurements yet")
    done = script("update_readme.py", "--check")
    assert done.returncode == 0, done.stderr


# --- run.sh and compare_gpus.sh, with fake programs -------------------------------------------

FAKE_PROGRAM = r"""#!/usr/bin/env bash
# Prints what a program with one kernel would; fakes/NAME holds another exit status and message.
name=$(basename "$0") here=$(dirname "$0") shape=square n=4096 dtype=fp32
if [[ $* == --describe ]]; then
    echo 'DESCRIPTION'
    exit
fi
echo "$name $* on ${CUDA_VISIBLE_DEVICES-}" >>"$here/calls"
while (($#)); do
    case $1 in
        --talk) shape=talk n=$2; shift ;;
        --dtype) dtype=$2; shift ;;
        --rows) shape=$2x$4 n=$2; shift 3 ;;
        --seed | --rounds) shift ;;
        --csv) ;;
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
echo COLUMNS
verified=yes
((status == 1)) && verified=no
((status == 3)) && exit 3
figures=1.0,0.1,12.5,,$verified,0.2,1,0,,100
echo "$name,kernel_of_$name,Fake GPU,90,$dtype,$shape,$n,$figures,ours"
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



def description(program, measured=(64,), multiple=32, talk=None, shapes=None, dtypes=("fp32",),
                sweep="never"):
    """What --describe prints, as far as the scripts read it. talk: the sizes S worth measuring."""
    own = []
    if len(dtypes) > 1:
        own.append({"name": "--dtype", "help": "the data", "kind": "choice",
                    "values": list(dtypes), "default": dtypes[0]})
    return {
        "program": program, "summary": "computes", "sweep": sweep,
        "sizes": {"multiple": multiple, "default": 4096, "measured": list(measured)},
        "talk": None if talk is None else {"multiple": 16, "measured": list(talk)},
        "shapes": shapes, "dtypes": list(dtypes),
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


class FakeMachine:
    """A copy of the scripts with fake programs, and two fake GPUs."""

    def __init__(self, root):
        self.root = root
        shutil.copytree(ROOT / "scripts", root / "scripts")
        shutil.copytree(ROOT / "site_scons", root / "site_scons")
        for folder in ("src", "bin", "fakes", "include/demo"):
            (root / folder).mkdir(parents=True)
        shutil.copy(ROOT / "include/demo/data_sheets.inc", root / "include/demo")
        for program, about in FAKES.items():
            (root / "src" / f"{program}.cu").touch()
            self.describes(program, about)
        self.install(root / "bin/nvidia-smi", FAKE_NVIDIA_SMI)
        self.has(*TWO_GPUS)
        self.samples("100, 1755, 61, 698.20, 0x0000000000000004")

    @staticmethod
    def install(path, text):
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def describes(self, program, about):
        """Lets a program describe itself so."""
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
                      env={"PATH": path, **(env or {})})

    def calls(self):
        return (self.root / "calls").read_text().splitlines()

    def results(self, name, folder="build/results"):
        """(the header's lines as a dict, the rows) of a file that compare_gpus.sh wrote."""
        lines = (self.root / folder / name).read_text().splitlines()
        about = [line[2:] for line in lines if line.startswith("#")]
        return (dict(re.fullmatch(r"(.*?):(?: (.*))?", line).groups() for line in about),
                list(csv.DictReader(lines[len(about):])))


@pytest.fixture
def machine(tmp_path):
    return FakeMachine(tmp_path)


def test_run_shows_progress_and_a_row_for_each_lesson(machine):
    done = machine.run("run.sh", "2048")
    assert done.returncode == 0, done.stderr
    steps, table = done.stdout.split("\n\n")
    assert [re.sub(r" \.\.\. .*", "", line) for line in steps.splitlines()] == [
        "[1/4] 1_matmul_basic N=2048", "[2/4] 2_matmul_sharedmem N=2048",
        "[3/4] 6_gating_fused N=2048", "[3/4] 6_gating_fused talk S=512", "[4/4] 10_fake N=2048"]
    lines = table_lines(table)
    assert lines[0] == ["Fake GPU, N=2048", "speed-up over"]
    assert [line[:2] for line in lines[3:8]] == [
        ["1_matmul_basic", "kernel_of_1_matmul_basic"],
        ["2_matmul_sharedmem", "kernel_of_2_matmul_sharedmem"],
        ["6_gating_fused", "kernel_of_6_gating_fused"],
        ["talk S=512", "kernel_of_6_gating_fused"],
        ["10_fake", "kernel_of_10_fake"]]
    assert lines[-1] == ["results: all verified"]


def test_run_all_shows_every_kernel_of_every_program(machine):
    done = machine.run("run.sh", "--all", "2048")
    assert done.returncode == 0, done.stderr
    steps, table = done.stdout.split("\n\n")
    begin = ["[1/6] 1_matmul_basic N=2048 ... 12.5 TFLOP/s",
             "[2/6] 2_matmul_sharedmem N=2048 ... ", "[3/6] 6_gating_fused N=2048 ... ",
             "[3/6] 6_gating_fused talk S=512 ... ", "[4/6] 10_fake N=2048 ... ",
             "[5/6] bonus_benchmark_fused ", "[6/6] bonus_fake N=2048 ... "]
    assert len(steps.splitlines()) == len(begin)
    assert all(line.startswith(text) for line, text in zip(steps.splitlines(), begin)), steps
    lines = table.splitlines()[2:]
    assert [line for line in lines if not line.startswith(" ")] == list(FAKES)
    kernels = [line.split() for line in lines if line.startswith(" ")]
    names = list(FAKES)
    assert [row[0] for row in kernels] == ["kernel_of_" + name for name in names[:3] + names[2:]]
    assert all(row[-1] == "yes" for row in kernels)


def test_run_runs_what_describes_itself(machine):
    machine.install(machine.root / "2_matmul_sharedmem", "#!/bin/sh\necho nonsense\n")
    machine.describes("bonus_fake", description("bonus_fake", multiple=1000))
    done = machine.run("run.sh", "--all", "2048")
    assert done.returncode == FAILED
    assert_one_line(done.stderr, "programs.py")
    assert "2_matmul_sharedmem does not describe itself" in done.stderr
    ran = {call.split()[0] for call in machine.calls()}
    assert ran == set(FAKES) - {"2_matmul_sharedmem", "bonus_fake"}  # which does not take this size


@pytest.mark.parametrize("program, reason", [
    ("echo '{\"program\": 1}'", "--describe printed something else"),
    ("echo 7", "--describe printed something else"),
    ("echo usage: x", "--describe printed no JSON"),
    ("echo 'x: unknown option --describe' >&2; exit 2", "exit status 2: unknown option --describe"),
    ("exit 3", "exit status 3: it gave no reason"),
    (None, "it is not built"),
])
def test_a_program_that_does_not_describe_itself_is_named(tmp_path, program, reason):
    if program:
        FakeMachine.install(tmp_path / "x", f"#!/bin/sh\n{program}\n")
    for command in (["show", tmp_path / "x", "64", "16"], ["measure", tmp_path / "x"]):
        done = script("programs.py", *command)
        assert (done.returncode, done.stdout) == (FAILED, "")
        assert done.stderr == f"programs.py: x does not describe itself: {reason}\n"


@pytest.mark.parametrize("failures, status, shown", [
    ({"2_matmul_sharedmem": 1}, 1, "FAILED, a wrong result: some reason"),
    ({"2_matmul_sharedmem": 3}, 3, "FAILED, exit status 3: some reason"),
    ({"2_matmul_sharedmem": 3, "10_fake": 1}, 1, "FAILED, a wrong result"),
    ({"2_matmul_sharedmem": 1, "10_fake": 3}, 1, "FAILED, exit status 3"),
    ({"2_matmul_sharedmem": 77}, 0, "skipped: some reason"),
    ({name: 77 for name in FAKES}, 77, "skipped: some reason"),
], ids=["wrong", "error", "error-then-wrong", "wrong-then-error", "one-skipped", "all-skipped"])
def test_run_goes_on_after_a_failure_and_reports_it(machine, failures, status, shown):
    for program, code in failures.items():
        machine.fail(program, code, "some reason")
    done = machine.run("run.sh", "--all")
    assert done.returncode == status
    assert shown in done.stdout
    assert {call.split()[0] for call in machine.calls()} == set(FAKES)


def test_run_misses_a_program_that_is_not_built(machine):
    (machine.root / "10_fake").unlink()
    done = machine.run("run.sh")
    assert done.returncode == 3
    assert "not built" in done.stdout


def test_count_misses_a_program_that_is_not_built(machine):
    (machine.root / "10_fake").unlink()
    done = machine.run("count.sh", "10")
    assert done.returncode == FAILED
    assert "10_fake is not built" in done.stderr


def test_run_without_a_gpu_runs_the_same_programs_on_the_cpu(machine):
    if glob.glob("/dev/nvidia[0-9]*"):
        pytest.skip("this machine has a GPU, which cannot be hidden from a script")
    FakeMachine.install(machine.root / "bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
    (machine.root / "cpu").mkdir()
    for name in FAKES:
        (machine.root / name).rename(machine.root / "cpu" / name)
    for arguments, ran in (["--all"], set(FAKES)), ([], {n for n in FAKES if n[0].isdigit()}):
        done = machine.run("run.sh", *arguments)
        assert done.returncode == 0, done.stdout
        assert_one_line(done.stderr, "run.sh")
        assert "no GPU here" in done.stderr
        calls = (machine.root / "cpu/calls").read_text()
        (machine.root / "cpu/calls").unlink()
        assert {call.split()[0] for call in calls.splitlines()} == ran
        assert {"256", "--talk 16"} == set(re.findall(r"(?<= )(?:--talk )?\d+(?= )", calls))


@pytest.mark.parametrize("driver, installs", [("580.1", True), ("570.86.15", False),
                                              ("[N/A]", True)])
def test_no_toolkit_is_installed_that_the_driver_cannot_run(machine, driver, installs):
    machine.install(machine.root / "bin/nvidia-smi", FAKE_NVIDIA_SMI.replace("580.1", driver))
    code = ("source scripts/setup.sh; ensure_compiler() { :; }; has_cuda() { false; }; "
            "pip_install() { echo installed && exit; }; ensure_cuda")
    env = {**os.environ, "PATH": f"{machine.root}/bin:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", code, "run.sh"], cwd=machine.root, env=env, text=True,
                          capture_output=True)
    assert (done.returncode, done.stdout) == ((0, "installed\n") if installs else (FAILED, ""))
    if not installs:
        assert_one_line(done.stderr, "run.sh")
        assert "570" in done.stderr and "CUDA_HOME" in done.stderr


def test_compare_measures_each_gpu_into_a_file_of_its_own(machine):
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--talk", "32")
    assert done.returncode == 0, done.stderr
    folder = machine.root / "build/results"
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["fake-gpu-0.csv", "fake-gpu-1.csv"]
    about, rows = machine.results("fake-gpu-0.csv")
    assert about["GPU"] == "Fake GPU" and about["driver"] == "580.1" and about["protocol"] == "2"
    assert about["seed"] == about["rounds"] == "1" and about["rows"] == "7"
    assert all(about[name] for name in ("toolkit", "suite", "date"))
    assert [(row["program"], row["shape"], row["dtype"]) for row in rows] == [
        ("1_matmul_basic", "square", "fp32"), ("2_matmul_sharedmem", "square", "fp32"),
        ("6_gating_fused", "square", "fp32"), ("6_gating_fused", "talk", "fp32"),
        ("10_fake", "square", "fp32"), ("10_fake", "square", "fp16"),
        ("bonus_fake", "square", "fp32")]
    assert list(rows[0]) == COLUMNS + CLOCKS

    assert len(machine.calls()) == 2 * 7
    assert {call.split()[-1] for call in machine.calls()} == {"GPU-aaa", "GPU-bbb"}
    assert not any("GPU-aaa" in (folder / name).read_text() for name in files)
    assert "fake-gpu-0.csv" in done.stdout  # the table's head
    assert compare(*(folder / name for name in files)).returncode == 0


def test_compare_measures_everything_into_results_and_a_selection_elsewhere(machine):
    machine.has(TWO_GPUS[0])
    assert machine.run("compare_gpus.sh").returncode == 0
    _, rows = machine.results("fake-gpu.csv", "results")
    sizes = {}
    for row in rows:
        shape = "other" if "x" in row["shape"] else row["shape"]
        sizes.setdefault((row["program"], shape, row["dtype"]), []).append(int(row["n"]))
    assert sizes == {
        ("1_matmul_basic", "square", "fp32"): [1024, 2048, 4096, 8192],
        ("2_matmul_sharedmem", "square", "fp32"): [1024, 2048, 4096, 8192],
        ("6_gating_fused", "square", "fp32"): [1024, 2048, 4096, 8192, 16384],
        ("6_gating_fused", "talk", "fp32"): [128, 256, 512, 1024, 2048],
        ("10_fake", "square", "fp32"): [4096, 8192, 16384],
        ("10_fake", "other", "fp32"): [4096, 8192],
        ("10_fake", "square", "fp16"): [4096, 8192, 16384],
        ("10_fake", "other", "fp16"): [4096, 8192],
        ("bonus_fake", "square", "fp32"): [1024, 2048, 4096, 8192, 16384],
    }
    before = (machine.root / "results/fake-gpu.csv").read_text()
    assert machine.run("compare_gpus.sh", "--quick").returncode == 0
    assert (machine.root / "results/fake-gpu.csv").read_text() == before
    _, rows = machine.results("fake-gpu.csv")
    assert [(row["program"], row["n"]) for row in rows] == [
        ("1_matmul_basic", "4096"), ("2_matmul_sharedmem", "4096"), ("6_gating_fused", "4096"),
        ("6_gating_fused", "1024"), ("10_fake", "4096"), ("bonus_fake", "4096")]


def test_compare_chooses_programs_by_name_or_number(machine):
    machine.has(TWO_GPUS[0])
    done = machine.run("compare_gpus.sh", "--programs", "1,bonus_fake", "--talk", "16", "--sizes",
                       "32", "--out", "elsewhere")
    assert done.returncode == 0, done.stderr
    _, rows = machine.results("fake-gpu.csv", "elsewhere")
    assert [row["program"] for row in rows] == ["1_matmul_basic", "bonus_fake"]
    done = machine.run("compare_gpus.sh", "--programs", "1", "--talk", "16")
    assert done.returncode == USAGE  # it has no such shape
    assert_one_line(done.stderr, "compare_gpus.sh")


@pytest.mark.parametrize("arguments", [(), ("--sizes", "64"), ("--quick",)])
def test_compare_measures_no_program_that_declares_no_sizes(machine, arguments):
    machine.has(TWO_GPUS[0])
    done = machine.run("compare_gpus.sh", *arguments, "--programs", "bonus_benchmark_fused")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "compare_gpus.sh")
    assert "declares no sizes to measure" in done.stderr


def test_compare_skips_sizes_that_a_program_does_not_take(machine):
    machine.has(TWO_GPUS[0])
    machine.describes("bonus_fake", description("bonus_fake", multiple=128))
    assert machine.run("compare_gpus.sh", "--sizes", "64,128").returncode == 0
    _, rows = machine.results("fake-gpu.csv")
    assert [row["n"] for row in rows if row["program"] == "bonus_fake"] == ["128"]
    assert [row["n"] for row in rows if row["program"] == "1_matmul_basic"] == ["64", "128"]


def test_compare_passes_the_number_of_rounds_on(machine):
    machine.has(TWO_GPUS[0])
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "1", "--rounds", "3")
    assert done.returncode == 0, done.stderr
    assert [call.split()[:-2] for call in machine.calls()] == [
        "1_matmul_basic 64 --seed 1 --rounds 3 --csv".split()]
    about, _ = machine.results("fake-gpu.csv")
    assert about["rounds"] == "3"


def test_compare_ends_where_a_program_does_not_describe_itself(machine):
    machine.install(machine.root / "10_fake", "#!/bin/sh\nexit 2\n")
    done = machine.run("compare_gpus.sh", "--sizes", "64")
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert_one_line(done.stderr, "programs.py")
    assert "10_fake" in done.stderr
    assert not (machine.root / "calls").exists()  # nothing was measured in vain


def test_compare_shows_the_time_left(machine):
    done = machine.run("compare_gpus.sh", "--sizes", "32,64,96", "--programs", "1,2")
    assert re.search(r"^\[6/6, about \d:\d\d left\] Fake GPU: ", done.stdout, re.MULTILINE)


def test_compare_visits_instances_instead_of_a_divided_gpu(machine):
    machine.has("GPU 0: Fake (R) GPU (UUID: GPU-aaa)",
                "  MIG 1g.18gb     Device  0: (UUID: MIG-111)",
                "  MIG 1g.18gb     Device  1: (UUID: MIG-222)",
                "  MIG 3g.71gb     Device  2: (UUID: MIG-333)", TWO_GPUS[1])
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "1")
    assert done.returncode == 0, done.stderr
    assert [call.split()[-1] for call in machine.calls()] == ["MIG-111", "MIG-222", "MIG-333",
                                                              "GPU-bbb"]
    names = {path.name for path in (machine.root / "build/results").iterdir()}
    assert names == {"fake-r-gpu-mig-1g-18gb-0.csv", "fake-r-gpu-mig-1g-18gb-1.csv",
                     "fake-r-gpu-mig-3g-71gb.csv", "fake-gpu.csv"}
    about, _ = machine.results("fake-r-gpu-mig-3g-71gb.csv")
    assert about["GPU"] == "Fake (R) GPU MIG 3g.71gb"
    sampled = (machine.root / "bin/calls").read_text().split("\n")
    assert sampled.count("sampling GPU-aaa") == 2 * 3  # clocks are those of the whole GPU


def test_compare_joins_clocks_with_what_ran_meanwhile(machine):
    machine.has(TWO_GPUS[0])
    machine.fail("1_matmul_basic", 40, "slow, and right")
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "1")
    assert done.returncode == 0, done.stderr
    about, (row,) = machine.results("fake-gpu.csv")
    assert [row[name] for name in CLOCKS] == ["1755", "61", "698", "power cap 100%", ""]
    assert about["SM clock"] == "1755 MHz" and about["temperature"] == "61 C"
    assert about["power"] == "698 W" and about["throttled"] == "power cap 100%"


@pytest.mark.parametrize("how, seen", [
    ("old", ["1755", "61", "698", "power cap 100%"]),  # a driver with the older names
    ("N/A", ["1980", "", "", ""]),  # and a GPU that does not tell everything
    ("nothing", ["", "", "", ""]),
])
def test_compare_takes_what_nvidia_smi_tells(machine, how, seen):
    machine.has(TWO_GPUS[0])
    machine.fail("1_matmul_basic", 40, "slow, and right")
    if how == "old":
        (machine.root / "bin/old").touch()
    elif how == "N/A":
        machine.samples("[N/A], 1980, [N/A], [Not Supported], [N/A]")
    else:
        machine.samples("Unable to determine the device handle")
    done = machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "1")
    assert done.returncode == 0, done.stderr
    _, (row,) = machine.results("fake-gpu.csv")
    assert [row[name] for name in CLOCKS[:4]] == seen


def test_compare_asks_the_driver_for_sms_and_memory(machine, tmp_path):
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    source = tmp_path / "driver.cpp"
    source.write_text("""
        #include <cstddef>
        extern "C" {
        int cuInit(unsigned) { return 0; }
        int cuDeviceGet(int* device, int) { return *device = 0; }
        int cuDeviceGetAttribute(int* value, int what, int) { *value = 7 * (what == 16); return 0; }
        int cuDeviceTotalMem_v2(size_t* bytes, int) { *bytes = size_t(18) << 30; return 0; }
        }""")
    (tmp_path / "lib").mkdir()
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", tmp_path / "lib/libcuda.so.1"],
                   check=True)
    machine.has(TWO_GPUS[0])
    arguments = ["compare_gpus.sh", "--sizes", "64", "--programs", "1"]
    assert machine.run(*arguments, env={"LD_LIBRARY_PATH": str(tmp_path / "lib")}).returncode == 0
    about, _ = machine.results("fake-gpu.csv")
    assert about["SMs"] == "7" and about["memory"] == "18.0 GiB"


@pytest.mark.parametrize("status, exit_status, verdicts", [
    (3, 3, ["failed"]),
    (4, 3, ["yes", "failed"]),  # at a later kernel
    (1, 1, ["no"]),
    (77, 0, ["skipped"]),
    (2, 3, ["failed"]),
])
def test_compare_goes_on_after_a_failure_and_its_row_says_why(machine, status, exit_status,
                                                              verdicts):
    machine.has(TWO_GPUS[0])
    machine.fail("2_matmul_sharedmem", status, 'a reason, with "quotes"')
    done = machine.run("compare_gpus.sh", "--sizes", "64")
    assert done.returncode == exit_status
    _, rows = machine.results("fake-gpu.csv")
    failed = [row for row in rows if row["program"] == "2_matmul_sharedmem"]
    assert [row["verified"] for row in failed] == verdicts
    assert failed[-1]["note"] == 'a reason, with "quotes"'
    assert failed[-1]["n"] == "64" and failed[-1]["shape"] == "square"
    assert rows[-1]["program"] == "bonus_fake" and rows[-1]["verified"] == "yes"
    assert compare(machine.root / "build/results/fake-gpu.csv").returncode == 0


def test_compare_misses_a_program_that_is_not_built(machine):
    machine.has(TWO_GPUS[0])
    (machine.root / "10_fake").unlink()
    done = machine.run("compare_gpus.sh", "--sizes", "64")
    assert done.returncode == FAILED
    assert_one_line(done.stderr, "programs.py")
    assert "10_fake" in done.stderr and "not built" in done.stderr


def interrupted(machine):
    """Starts measuring three programs, and presses Ctrl-C at the third. Returns the command."""
    command = ["compare_gpus.sh", "--sizes", "64", "--programs", "1,2,6"]
    machine.fail("6_gating_fused", 130, "pressed Ctrl-C")
    done = machine.run(*command)
    assert done.returncode == 130
    assert "the same command goes on" in done.stderr
    assert not list((machine.root / "build/results").iterdir())
    assert len(machine.calls()) == 3
    (machine.root / "fakes/6_gating_fused").unlink()
    return command


def test_compare_goes_on_where_it_was_interrupted(machine):
    command = interrupted(machine)
    done = machine.run(*command)
    assert done.returncode == 0, done.stderr
    assert "2 of 3 steps were measured before" in done.stderr
    assert len(machine.calls()) == 3 + 1 + 3  # what was cut off, and the other GPU
    about, rows = machine.results("fake-gpu-0.csv")
    assert about["rows"] == "3" == str(len(rows))
    assert not (machine.root / "build/compare").exists()  # the next run starts over


def test_compare_keeps_what_another_selection_has_measured(machine):
    machine.has(TWO_GPUS[0])
    command = interrupted(machine)
    assert machine.run("compare_gpus.sh", "--sizes", "64", "--programs", "1").returncode == 0
    done = machine.run(*command)
    assert done.returncode == 0, done.stderr
    assert "2 of 3 steps were measured before" in done.stderr


def test_scripts_find_their_folder_whatever_cdpath_says(machine, tmp_path):
    (tmp_path / "elsewhere/scripts").mkdir(parents=True)
    env = {**os.environ, "CDPATH": str(tmp_path / "elsewhere"),
           "PATH": f"{machine.root}/bin:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "scripts/run.sh", "--no-build", "64"], cwd=machine.root, env=env,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("change", ["driver", "program", "fresh"])
def test_compare_starts_over_where_something_has_changed(machine, change):
    machine.has(TWO_GPUS[0])
    command = interrupted(machine)
    if change == "driver":
        machine.install(machine.root / "bin/nvidia-smi", FAKE_NVIDIA_SMI.replace("580.1", "590.2"))
    elif change == "program":
        for path in machine.root.glob("*_*"):  # built once more
            os.utime(path, (os.path.getmtime(path) + 3600,) * 2)
    done = machine.run(*command, *["--fresh"] * (change == "fresh"))
    assert done.returncode == 0, done.stderr
    assert len(machine.calls()) == 3 + 3


def test_compare_without_a_gpu_is_skipped(machine):
    machine.install(machine.root / "bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
    done = machine.run("compare_gpus.sh", "--quick")
    assert done.returncode == 77
    assert_one_line(done.stderr, "compare_gpus.sh")
    assert not (machine.root / "build/results").exists()


# --- What programs say of themselves --------------------------------------------------------------


def test_programs_take_what_the_scripts_make_of_their_descriptions(backend):
    built = [backend.folder / name for name in PROGRAMS if (backend.folder / name).exists()]
    if not built:
        pytest.skip("no program is built")
    for path in built:
        about = programs.describe(path)
        runs = programs.runs_to_measure(about) or []
        runs += [run for _, run in programs.runs_to_show(about, 256, 16)]
        assert about["program"] == path.name and runs
        for run in runs:
            programs.describe(path, *run.split())


NAME_KERNELS = {"compare_frameworks.py"}  # it sets other people's kernels beside ours
KERNEL_NAMES = re.compile(r"(?<![a-z])(cublas|copy|six_kernels|library_best|fused|tiled|gating)")
# The trace of a profile has copies, and copies are no kernels; a Python package is named cublas.
OTHER_MEANINGS = {"profile_report.py": {"copy"}, "profile.sh": {"copy"}, "setup.sh": {"cublas"}}


def literals(path):
    """What a script's code holds as text: Python's strings, or the words of Bash; no comments, no
    help."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tree = ast.parse(text)
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)
                and isinstance(node.value, str) and id(node) not in prose]
    text = re.sub(r"<<'END'\n.*?\nEND\n", "\n", text, flags=re.DOTALL)
    return [re.sub(r"(^|\s)#.*", "", line) for line in text.splitlines()]


def named_kernels(path):
    """Words with which a script could tell a kernel by its name, in text that is no sentence."""
    words = [word for text in literals(path) for word in text.split()
             if path.suffix == ".sh" or " " not in text]
    found = {match[0] for match in map(KERNEL_NAMES.search, words) if match}
    return found - OTHER_MEANINGS.get(path.name, set())


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").glob("*.[ps][yh]")),
                         ids=lambda path: path.name)
def test_scripts_know_kernels_by_their_roles_alone(path):
    if path.name not in NAME_KERNELS:
        assert not named_kernels(path)


@pytest.mark.parametrize("text, found", [
    ("if row['kernel'] == 'copy': pass", {"copy"}),
    ("best = kernel.startswith('cublas')", {"cublas"}),
    ('"""fused"""', set()), ("# fused\nx = 'as fused kernels do'", set()),
])
def test_a_kernels_name_in_code_is_found(tmp_path, text, found):
    (tmp_path / "x.py").write_text(text + "\n")
    assert named_kernels(tmp_path / "x.py") == found


HELP_OF_A_PROGRAM = re.compile(  # called: by a script, by a test
    r"(\"?\$\S+|\$\{\S+\}\"?) +--help\b|(backend|live|GPU)\.run\([^)]*\"--help\"")


@pytest.mark.parametrize("path", sorted([*(ROOT / "scripts").glob("*.[ps][yh]"),
                                         *(ROOT / "tests").glob("*.py")]),
                         ids=lambda path: path.name)
def test_nothing_reads_a_programs_help(path):
    # One tests the text itself; the other uses --help to have options read and nothing run.
    if path.name in ("test_programs.py", "test_describe.py"):
        return
    found = HELP_OF_A_PROGRAM.search(path.read_text(encoding="utf-8"))
    assert not found, found[0]
