"""--describe: it has the form that describe.schema.json says, and is true of what programs run and
accept. (Tests and scripts learn of programs from nothing else.)"""

import functools
import json
import re
from typing import NamedTuple, Tuple

import pytest

import suite
from pages import of_page
from suite import NO_GPU, PROGRAMS, ROOT, SKIPPED, USAGE, VERIFIED, assert_one_line, describe, run

each_program = pytest.mark.parametrize("program", PROGRAMS)
BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "int8": 1, "fp8": 1, "int32": 4,
         "uint32": 4}  # of a number in memory


@functools.lru_cache(maxsize=None)
def description(backend, program, arguments):
    """The text that this backend's build prints with these arguments, without a GPU."""
    done = backend.run(program, *arguments, "--describe", env=NO_GPU)
    assert (done.returncode, done.stderr) == (VERIFIED, "")
    return done.stdout


def described(backend, program, *arguments):
    """What it says there; each test may change its own."""
    return json.loads(description(backend, program, arguments))


class CommandLine(NamedTuple):
    """Arguments that decide what is computed, and what that must be."""

    arguments: Tuple[str, ...]
    shape: str
    n: int
    dtypes: Tuple[str, ...]


def command_lines(backend, program):
    """Without arguments, then sizes, shapes and types."""
    about = described(backend, program)
    n = min(96, backend.size_of(program))
    if suite.takes_n(program):
        sizes = [((), "square", about["sizes"]["default"]), ((str(n),), "square", n)]
    else:
        [talk] = [option for option in about["options"] if option["name"] == "--talk"]
        sizes = [((), "talk", talk["default"])]
    if suite.takes_talk(program):
        sizes.append((("--talk", "48"), "talk", 48))
    if suite.any_shape(program):
        sizes.append((("--rows", "3", "--cols", "1000"), "3x1000", 3))
    if not suite.takes(program, "--dtype"):
        return [CommandLine(*size, tuple(about["dtypes"])) for size in sizes]
    lines = [CommandLine(*size, (about["dtypes"][0],)) for size in sizes]
    return lines + [CommandLine(arguments + ("--dtype", dtype), shape, n, (dtype,))
                    for arguments, shape, n in sizes for dtype in about["dtypes"]]


def problems(backend, program):
    """Every problem that the program describes for its command lines."""
    return [problem for line in command_lines(backend, program)
            for problem in described(backend, program, *line.arguments)["problems"]]


# --- Its form -----------------------------------------------------------------------------------


@each_program
def test_it_has_the_form_that_the_schema_says(backend, program):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    if not hasattr(jsonschema, "Draft202012Validator"):
        pytest.skip("jsonschema is older than 4.0")
    schema = json.loads((ROOT / "tests/describe.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    for line in command_lines(backend, program):
        validator.validate(described(backend, program, *line.arguments))


@each_program
def test_the_order_of_keys_stays(backend, program):
    about = described(backend, program)
    assert list(about) == ["program", "summary", "sweep", "sizes", "talk", "shapes", "variants",
                           "grid", "dtypes", "options", "contenders", "problems"]
    assert list(about["problems"][0]) == ["shape", "n", "dtype", "flops", "least_bytes",
                                          "memory_bound", "contenders", "inputs", "outputs",
                                          "parameters", "expected"]


@each_program
def test_a_grid_has_kernels_and_sizes_that_the_program_takes(backend, program):
    about = described(backend, program)
    if not about["grid"]:
        return
    kernels, sizes = about["grid"]["kernels"], about["grid"]["sizes"]
    described(backend, program, sizes[-1], "--kernel", ",".join(kernels))  # understands them
    roles = [c["role"] for c in about["contenders"] if c["kernel"] in kernels]
    assert set(roles) == {"ours", "yardstick"}
    assert sizes == sorted(set(sizes)) and all(n % about["sizes"]["multiple"] == 0 for n in sizes)


@each_program
def test_variants_are_command_lines(backend, program):
    for variant in described(backend, program)["variants"]:
        assert described(backend, program, *variant.split())["problems"]


# --- What it says of itself ---------------------------------------------------------------------


@each_program
def test_it_agrees_with_itself(backend, program):
    about = described(backend, program)
    assert about["program"] == program
    names = [option["name"] for option in about["options"]]
    assert len(set(names)) == len(names)
    assert {"--kernel", "--seed", "--device", "--rounds", "--hot", "--once", "--verbose", "--csv",
            "--describe", "--help"} <= set(names)
    assert ("--talk" in names) == (about["talk"] is not None)
    assert ({"--rows", "--cols"} <= set(names)) == (about["shapes"] is not None)
    assert ("--sweep" in names) == (about["sweep"] == "on request")
    if "--dtype" in names:
        [dtype] = [option for option in about["options"] if option["name"] == "--dtype"]
        assert dtype["values"] == about["dtypes"] and dtype["default"] == about["dtypes"][0]

    kernels = [contender["kernel"] for contender in about["contenders"]]
    assert len(set(kernels)) == len(kernels)
    assert {dtype for c in about["contenders"] for dtype in c["dtypes"]} == set(about["dtypes"])
    assert not [c for c in about["contenders"] if c["only"] == "talk" and about["talk"] is None]

    sizes, talk = about["sizes"], about["talk"] or {"multiple": 1, "measured": []}
    if sizes:
        assert sizes["default"] % sizes["multiple"] == 0
        assert all(n % sizes["multiple"] == 0 for n in sizes["measured"])
    assert all(s % talk["multiple"] == 0 for s in talk["measured"])
    if talk["measured"]:
        [option] = [option for option in about["options"] if option["name"] == "--talk"]
        assert option["multiple"] == option["first"] == talk["multiple"]


@each_program
def test_a_problem_is_that_of_the_command_line(backend, program):
    about = described(backend, program)
    problem_apart = {key: value for key, value in about.items() if key != "problems"}
    for line in command_lines(backend, program):
        found = described(backend, program, *line.arguments)
        for problem in found["problems"]:
            assert (problem["shape"], problem["n"]) == (line.shape, line.n)
        for dtype in line.dtypes:
            compared = [kernel for problem in found["problems"] if problem["dtype"] == dtype
                        for kernel in problem["contenders"]]
            assert list(dict.fromkeys(compared)) == [
                c["kernel"] for c in found["contenders"]
                if dtype in c["dtypes"] and c["only"] in (None, line.shape)]
        assert tuple(dict.fromkeys(p["dtype"] for p in found["problems"])) == line.dtypes
        if suite.one_comparison(program):
            assert len(found["problems"]) == len(line.dtypes)
        else:  # of which not every size has all
            assert all(c in about["contenders"] for c in found["contenders"])
            found["contenders"] = about["contenders"]
        del found["problems"]  # nothing else changes
        assert found == problem_apart


@each_program
def test_bytes_are_those_of_the_shapes(backend, program):
    for problem in problems(backend, program):
        arrays = problem["inputs"] + problem["outputs"]
        assert len({array["name"] for array in arrays}) == len(arrays)
        for array in arrays:
            size = BYTES[array["dtype"]]
            for length in array["shape"]:
                size *= length
            assert array["bytes"] == size
            # Products of bytes need wider sums.
            wider = BYTES[problem["dtype"]] == 1 and array in problem["outputs"]
            assert (array["dtype"] == "uint32" or wider
                    or BYTES[array["dtype"]] == BYTES[problem["dtype"]])
        whole = sum(array["bytes"] for array in arrays)
        if of_page(program, "SCALED"):
            assert problem["least_bytes"] == of_page(program, "SCALED")
        elif any(array["dtype"] == "uint32" for array in arrays):  # some rows of tables are read
            assert 0 < problem["least_bytes"] <= whole
        else:
            assert problem["least_bytes"] == whole
        assert problem["flops"] >= 0  # 0: it moves numbers, and computes none


@pytest.mark.parametrize("program, arguments", suite.runs_of("OPERATIONS"), ids=suite.words)
def test_operations_are_those_of_the_formula(backend, program, arguments):
    problems = described(backend, program, *arguments)["problems"]
    by_formula = of_page(program, "OPERATIONS")[" ".join(arguments)]
    if isinstance(by_formula, dict):
        by_formula = by_formula[backend.name]
    several = by_formula if isinstance(by_formula, set) else {by_formula}
    assert {problem["flops"] for problem in problems} == several


@each_program
def test_every_input_has_data_of_its_own(backend, program):
    def seeds(*arguments):
        found = [[array["fill"]["seed"] for array in problem["inputs"]]
                 for problem in described(backend, program, *arguments)["problems"]]
        assert all(len(set(each)) == len(each) for each in found)
        return found

    assert [[seed + 41 for seed in each] for each in seeds()] == seeds("--seed", "42")
    for problem in problems(backend, program):
        for array in problem["inputs"]:
            if array["fill"]["kind"] == "uniform":
                assert array["fill"]["low"] < array["fill"]["high"]


def test_a_huge_size_is_described_too(backend):
    about = described(backend, "2_matmul_sharedmem", 1 << 20)
    assert about["problems"][0]["flops"] == 2.0 * 2**60
    assert about["problems"][0]["least_bytes"] == 3 * 4 * 2**40


def test_tile_kernels_are_named_without_their_compiler_too(backend):
    needs = {c["kernel"]: c["needs"] for c in described(backend, "6_gating_fused")["contenders"]}
    for kernel in ("fused_tile", "fused_talk_tile"):
        assert re.search(r"nvcc 13\.3|compute capability 8\.0", needs[kernel])
    path = backend.folder / "bonus_tile"
    if path.exists() and suite.lacks_its_kernels(path):
        done = run(path, 32, "--once")
        assert (done.returncode, done.stdout) == (SKIPPED, "")
        assert_one_line(done.stderr, "bonus_tile")


# --- What it says of the runs -------------------------------------------------------------------


@pytest.mark.full
@each_program
def test_the_rows_of_a_run_are_those_described(live, program):
    about = describe(program)
    contenders = {c["kernel"]: c for c in about["contenders"]}
    lines = command_lines(live, program)
    # Each size in the first type, which is that without --dtype, and one size in each other type.
    others = [line for line in lines if "--dtype" in line.arguments[:-1]
              and line.dtypes[0] != about["dtypes"][0] and line.n == lines[1].n]
    for line in [line for line in lines if "--dtype" not in line.arguments] + others:
        rows = suite.verified_rows(live.run(program, *line.arguments, "--once", "--csv"), program)
        for row in rows:
            contender = contenders[row["kernel"]]
            assert row["role"] == contender["role"]
            assert row["dtype"] in contender["dtypes"]
            assert contender["only"] in (None, row["shape"])
            problem = suite.problem_of(live, row)
            assert row["kernel"] in problem["contenders"]
            assert row["least_bytes"] == str(problem["least_bytes"])
            assert (row["sm"] == "") == (live.name == "cpu")
        if not suite.one_size(program):
            continue
        expected = [(problem["dtype"], kernel)
                    for problem in described(live, program, *line.arguments)["problems"]
                    for kernel in problem["contenders"]]
        ran = [(row["dtype"], row["kernel"]) for row in rows]
        assert [pair for pair in expected if pair in ran] == ran
        missing = {kernel for _, kernel in set(expected) - set(ran)}
        silent = {kernel for kernel in missing if contenders[kernel]["role"] == "record"}
        assert len(silent) < sum(c["role"] == "record" for c in about["contenders"]) or not silent
        missing -= silent  # of several records one runs
        if any(not contenders[kernel]["needs"] for kernel in missing):  # this size is beyond it
            said = live.run(program, *line.arguments, "--once").stdout
            assert missing <= set(re.findall(r"^  (\w+) +skipped: ", said, re.MULTILINE))


# --- What it says of the options ----------------------------------------------------------------


def accepts(backend, program, *arguments):
    """Whether these arguments are understood; with --help nothing else happens."""
    done = backend.run(program, *arguments, "--help", env=NO_GPU)
    assert done.returncode in (VERIFIED, USAGE)
    if done.returncode == USAGE:
        assert done.stdout == ""
        assert_one_line(done.stderr, program)
    return done.returncode == VERIFIED


PARSED = ["1_matmul_basic", "6_gating_fused"]  # whose every option is tried; of others their own

# What an option wants beside it.
BESIDE = {"--rows": ["--cols", "1"], "--cols": ["--rows", "1"]}


@each_program
def test_options_take_what_they_say(backend, program):
    options = described(backend, program)["options"]
    if program not in PARSED:
        common = {option["name"] for option in described(backend, PARSED[0])["options"]}
        options = [option for option in options if option["name"] not in common]
    both = {option["name"] for option in options} >= set(BESIDE)
    for option in options:
        name, kind = option["name"], option["kind"]
        if name == "--help":
            continue
        beside = both and BESIDE.get(name) or option.get("only_with", [])

        def takes_value(value, beside=beside):
            return accepts(backend, program, name, value, *beside)

        if kind == "flag":
            assert accepts(backend, program, name)
            assert not accepts(backend, program, name, name)
            assert not takes_value("no_size")
            continue
        last = backend.run(program, *beside, name, env=NO_GPU)  # without a value
        assert last.returncode == USAGE and "needs a value" in last.stderr
        if kind == "choice":
            assert all(takes_value(value) for value in option["values"])
            assert option["default"] in option["values"]
            assert not takes_value("no_such_choice") and not takes_value("")
        elif kind == "number":
            first, last, multiple = option["first"], option["last"], option["multiple"]
            assert takes_value(first) and takes_value(first + multiple)
            assert takes_value(last // multiple * multiple)
            assert not takes_value(first - 1) and not takes_value(last + 1)
            assert multiple == 1 or not takes_value(first + 1)
            assert option["default"] is None or first <= option["default"] <= last
        else:
            assert kind == "name" and name in ("--kernel", "--meet")


@each_program
def test_kernel_takes_the_contenders(backend, program):
    for contender in described(backend, program)["contenders"]:
        size = ["--talk", "16"] if contender["only"] == "talk" else []
        described(backend, program, *size, "--kernel", contender["kernel"])
    done = backend.run(program, "--describe", "--kernel", "no_such_kernel", env=NO_GPU)
    assert (done.returncode, done.stdout) == (USAGE, "")
