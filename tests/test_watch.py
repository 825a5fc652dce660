"""scripts/watch.sh: what it traces, what it refuses, and the page that plays it."""

import csv
import os
import re

import pytest

import browser
import presets
import trace_file
from fakes import script
from suite import (
    CPU,
    PROGRAMS,
    ROOT,
    SKIPPED,
    USAGE,
    VERIFIED,
    assert_one_line,
    build_lock,
    describe,
    kernels,
    run,
)

QUICK = ("1_matmul_basic", "2_matmul_sharedmem", "3_matmul_tensorcore", "6_gating_fused")
KINDS = set("global loads,global stores,global atomics,shared loads,shared stores,shared atomics,"
            "barriers".split(","))
needs_browser = pytest.mark.skipif(not browser.CHROMIUM, reason="Chromium is not installed")


# --- The trace ------------------------------------------------------------------------------------


def traced(path, program, kernel, *arguments):
    """The trace of a kernel; skips the test where it does not run, or does what no page shows."""
    done = run(CPU.folder / "count" / program, *arguments, "--kernel", kernel, "--once",
               env={"DEMO_COUNT": f"trace:{path}", "DEMO_SCHEDULE": "alone"})
    if done.returncode == USAGE:
        pytest.skip(done.stderr)
    assert done.returncode == VERIFIED, done.stderr
    trace = trace_file.Trace(path, kernel)
    if any(launch.has_engines for launch in trace.launches):
        pytest.skip("copy engines, wgmma or CUDA Tile C++")
    return trace


@pytest.mark.parametrize("program", [pytest.param(name, marks=[] if name in QUICK
                                                  else pytest.mark.full) for name in PROGRAMS])
def test_sums_are_those_of_demo_count(program, tmp_path):
    """Counted anew from each lane's addresses, of every kernel that the page shows."""
    sizes, compared = describe(program)["sizes"], 0
    size = [min(64, sizes["default"])] if sizes else []
    for kernel in kernels(program):
        try:
            trace = traced(tmp_path / "trace", program, kernel, *size)
        except pytest.skip.Exception:
            continue
        done = run(CPU.folder / "count" / program, *size, "--kernel", kernel, "--once",
                   env={"DEMO_COUNT": "csv", "DEMO_SCHEDULE": "alone"})
        counted = {}
        for row in csv.DictReader(done.stdout[done.stdout.index("kernel,what"):].splitlines()):
            if row["what"] in KINDS:
                counted.setdefault(row["kernel"], {})[row["what"]] = {
                    name: int(row[name]) for name in trace_file.COUNTS}
        for name in {launch.name for launch in trace.launches if launch.blocks}:
            first = next(launch for launch in trace.launches if launch.name == name)
            sums = {kind: {name: counts[name] for name in trace_file.COUNTS}
                    for kind, counts in first.totals(trace.places).items()}
            assert sums == counted[name], (kernel, name)
            compared += 1
        for request in requests_of(trace):
            if trace.places[request.place].kind in ("global loads", "global stores"):
                places = [divmod(offset, trace_file.BUFFER) for offset in request.offsets()]
                touched = {(trace.buffers[number][0] + offset + byte) // 32
                           for number, offset in places for byte in (0, request.bytes - 1)}
                assert request.sectors == len(touched)
    assert compared or program not in QUICK


def requests_of(trace):
    return [event for launch in trace.launches for events in launch.blocks.values()
            for event in events if isinstance(event, trace_file.Request)]


def test_each_lane_in_its_order_with_its_values(tmp_path):
    """Adding up what a thread loads from its tiles gives what it stores, in fp32 a sum of 64."""
    trace = traced(tmp_path / "trace", "2_matmul_sharedmem", "matmul_sharedmem", 64)
    [launch] = trace.launches
    assert [array[2:] for array in launch.shared] == [("fp32", 32, 32, "tile_A"),
                                                      ("fp32", 32, 32, "tile_B")]
    assert [trace.buffers[n][2:] for n in launch.written] == [("fp32", 64, "C")]
    assert {trace.buffers[n][4] for n in launch.read} == {"A", "B"} and not trace.wrong
    loaded, stored = {}, {}
    for request in launch.blocks[1, 0, 0]:
        if not isinstance(request, trace_file.Request):
            continue
        kind, numbers = trace.places[request.place].kind, request.numbers("fp32")
        for lane in range(32):
            number = numbers[lane if len(numbers) > 1 else 0]
            if kind == "shared loads":
                loaded.setdefault((request.warp, lane), []).append(number)
            elif kind == "global stores":
                stored[request.warp, lane] = number
    assert len(loaded) == len(stored) == 1024
    for thread, numbers in loaded.items():
        products = sum(a * b for a, b in zip(numbers[::2], numbers[1::2]))
        assert len(numbers) == 128
        scale = sum(abs(a * b) for a, b in zip(numbers[::2], numbers[1::2]))
        assert products == pytest.approx(stored[thread], abs=2e-3 * scale)


@pytest.mark.full
def test_launches_have_names_and_bytes(tmp_path):
    trace = traced(tmp_path / "trace", "5_gating_unfused", "six_kernels", 64)
    assert [launch.name for launch in trace.launches] == [
        "cuBLAS", "add_bias", "sigmoid", "cuBLAS", "add_bias", "multiply"]
    named = [({trace.buffers[n][4] for n in launch.read},
              {trace.buffers[n][4] for n in launch.written}) for launch in trace.launches]
    assert named == [({"x", "W1"}, {"t1"}), ({"t1", "b1"}, {"t2"}), ({"t2"}, {"t1"}),
                     ({"x", "W2"}, {"t2"}), ({"t2", "b2"}, {"out"}), ({"t1", "out"}, {"out"})]
    assert [sum(launch.written.values()) for launch in trace.launches] == [64 * 64 * 2] * 6


@pytest.mark.parametrize("text, status, says", [
    ("trace 2\nend\n", USAGE, "is no trace of version 1"),
    ("trace 1\nrange a\n", 3, "has no end"),
])
def test_a_trace_that_is_none(text, status, says, tmp_path):
    (tmp_path / "trace").write_text(text)
    with pytest.raises(trace_file.Stop, match=says) as stop:
        trace_file.Trace(tmp_path / "trace", "a")
    assert stop.value.status == status


def test_a_trace_that_is_too_long(tmp_path):
    done = run(CPU.folder / "count/1_matmul_basic", 256, "--once",
               env={"DEMO_COUNT": f"trace:{tmp_path / 'trace'}"})
    assert done.returncode == USAGE and "over 20 MB" in done.stderr
    assert_one_line(done.stderr, "1_matmul_basic")


# --- The command line -----------------------------------------------------------------------------


def watch(*arguments):
    with build_lock():
        return script("watch.sh", *arguments)


@pytest.mark.full
def test_what_only_a_run_shows():
    done = watch("--block", 2, 0, 2, 64)
    assert done.returncode == USAGE
    assert done.stderr.endswith("watch.sh: --block 2 0: the grid has 2 x 2 blocks\n")
    done = watch("--kernel", "fused_hopper", 6)
    assert done.returncode == SKIPPED and "TMA" in done.stderr
    done = watch(2, 256)
    assert done.returncode == USAGE and "as a rule N = 64" in done.stderr
    assert script("watch.sh", "--list").stdout.count("\n") == len(presets.PRESETS)


# --- The page -------------------------------------------------------------------------------------

PRESS = "for (const key of %s) dispatchEvent(new KeyboardEvent('keydown', {key}))"


class Player:
    """A page in the browser, once its frame is drawn."""

    def __init__(self, page, name, dark=False):
        self.page, self.path = page, ROOT / f"build/watch/{name}.html"
        page.open(self.path, 1280, dark, 720)
        self.value("new Promise(done => { const look = () => document.querySelector('#frame svg') "
                   "? done(1) : setTimeout(look, 20); look(); })")

    def value(self, expression):
        return self.page.evaluate(expression)

    def press(self, *keys):
        self.value(PRESS % list(keys))
        return self.said()

    def said(self):
        return self.value("[...document.querySelectorAll('#frame text')].map(each => "
                          "each.textContent).join(' ')")

    def state(self, name):
        return self.value(f"state.{name}")


@pytest.fixture(scope="module")
def player(tmp_path_factory):
    """opens(NAME, ...) makes a page, and opens it."""
    with browser.page(tmp_path_factory.mktemp("watch") / "profile") as page:

        def opens(name, *arguments, dark=False):
            done = watch(*(arguments or ("--preset", name)))
            assert done.returncode == VERIFIED, done.stderr
            assert done.stdout.startswith(f"build/watch/{name}.html: open it in a browser")
            own = Player(page, name, dark)
            assert page.requested() == [own.path.as_uri()]
            assert own.path.stat().st_size < 1 << 20
            return own

        opens.page = page
        yield opens


@pytest.mark.full
@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_sectors_are_counted(player, dark):
    own = player("sectors", dark=dark)
    assert "Warp 5 reads A[5][0], line 37: how many sectors?" in own.press()
    assert "1 sector: 32 bytes come, 4 of them asked for" in own.press("ArrowRight")
    said = own.press("ArrowRight")
    assert "Warp 5 reads B[0][0..31], line 37: 32 lanes, 4 sectors." in said
    assert re.search(r"lane 0: sum = 0 \+ \S+ × \S+", said)
    assert "Warp 5 reads B[0][5]" in own.press("m")  # x and y swapped
    assert "Warp 5 reads A[0..31][0], line 37: 32 lanes, 32 sectors." in own.press("ArrowLeft")
    assert "2.50" in own.press("m", "t") and "16.50" in own.press("m")
    said = own.press("End", "c")
    assert "2.50 sectors a load" in said and "16.50 sectors a load" in said


@pytest.mark.full
@needs_browser
def test_trips_add_up(player):
    own = player("trips")
    assert "0 B read and written" in own.press()
    assert "24 KiB read and written" in own.press("ArrowRight")
    said = own.press("End")
    assert "120.3 KiB read and written" in said
    assert "32.3 KiB read and written, 3.7 times less" in said


@pytest.mark.full
@needs_browser
def test_tiles_are_loaded_once(player):
    own = player("tiles")
    said = own.press("End")
    assert "131,072 loads of 4,096 numbers: 32 each" in said
    assert "4,096 loads of 4,096 numbers: 1 each" in said
    # What the page itself counts, over all blocks, is what count.sh prints.
    for run_ in (0, 1):
        counted = own.value(f"""(() => {{ const launch = page.runs[{run_}].launches[0], sums = {{}};
            for (const block of Object.keys(launch.blocks)) {{
                const counts = countsUntil(shownOf({{...state, block}}, {run_}), Infinity);
                for (const kind in counts) for (const name in counts[kind])
                    (sums[kind] ??= {{}})[name] = (sums[kind][name] ?? 0) + counts[kind][name];
            }}
            return [sums, launch.totals]; }})()""")
        for kind, totals in counted[1].items():
            assert counted[0][kind] == {name: totals.get(name, 0) for name in counted[0][kind]}
    own.press("Home", "PageDown")
    assert own.state("tick") > 0


CLICK_C = """{  // a click on C[31][31]
    const C = [...document.querySelectorAll("[data-at]")].find(each => page.runs[state.run]
        .buffers[each.dataset.array]?.[3] === "C"), place = C.getBoundingClientRect();
    C.dispatchEvent(new MouseEvent("click", {bubbles: true,
        clientX: place.x + 31.5 / 64 * place.width, clientY: place.y + 31.5 / 64 * place.height}));
}"""


@pytest.mark.full
@needs_browser
def test_a_barrier_holds_and_its_lack_shows(player):
    own = player("barrier")
    assert "All 32 warps have come to the barrier, line 45" in own.press("ArrowDown")
    own.value("state.tick -= 1, show()")
    assert "Warp 0 waits at the barrier, line 45: 31 of 32 warps are there." in own.said()
    assert own.value("shownOf(state).order.some(each => each.event.races)") is False
    assert own.value("page.runs[0].wrong.length") == 0 < own.value("page.runs[1].wrong.length")
    said = own.press("m", "r")
    assert "Warp 1 reads tile_B[3][0..31], line 46: warp 3 writes there, and no barrier" in said
    assert re.search(r"lane 0: tile_B\[3\]\[0\] = NaN, before warp 3 writes \S", said)
    # The slow warp's row of C is right; all others read its rows of the tiles too early.
    assert own.value("shownOf(state).spoiled.size") == 31 * 32
    own.press("End")
    own.value(CLICK_C)
    assert own.state("warp") == 31 and own.state("tick") < own.value("lastTick()") / 2


@pytest.mark.full
@needs_browser
def test_keys_and_links(player):
    own = player("2_matmul_sharedmem", "2_matmul_sharedmem", 64)
    for keys, name, value in [("w", "warp", 1), ("WW", "warp", 31), ("e", "lane", 1),
                              ("b", "block", "1,0,0"), ("o", "slow", 1), ("]", "latency", 16)]:
        own.press(*keys)
        assert own.state(name) == value
    link = own.value("location.hash")
    own.press("Home", "w", "e", "b", "o", "[")
    own.value(f"location.hash = {link!r}; new Promise(done => setTimeout(done, 50))")
    assert own.value("location.hash") == link
    own.press(".")
    assert own.value("document.body.className") == "black"
    own.press(".", "?")
    keys = own.value("document.querySelector('dialog').innerText")
    assert "next, previous barrier that opens" in keys
    drawn = own.value("new DOMParser().parseFromString(frame(state, 1), 'image/svg+xml')"
                      ".querySelector('parsererror') === null")
    assert drawn


PICTURES = {  # docs/pictures/watch-NAME-*.svg: the keys that lead to the frame
    "sectors": ["m", "ArrowRight"],
    "trips": ["End"],
    "tiles": ["PageDown", *["ArrowRight"] * 24],
    "barrier": ["m", "r"],
    "threads": ["PageDown", *["ArrowRight"] * 5],
}


@pytest.mark.full
@needs_browser
@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_the_pages_frames(player, name):
    """With TEST_PICTURES=1 in the environment it writes them."""
    player(*(("1_matmul_basic", 1, 64) if name == "threads" else (name,))).press(*PICTURES[name])
    for theme, mode in enumerate(("light", "dark")):
        path = ROOT / f"docs/pictures/watch-{name}-{mode}.svg"
        drawn = player.page.evaluate(f"frame(state, {theme})") + "\n"
        if "TEST_PICTURES" in os.environ:
            path.write_text(drawn, "utf-8")
        assert path.read_text("utf-8") == drawn, "TEST_PICTURES=1 writes it anew"


@pytest.mark.full
@needs_browser
def test_every_lesson_opens_and_none_has_a_race(player):
    for name in filter(lambda each: each[0].isdigit(), PROGRAMS):
        own = player(name, name)
        assert own.press("ArrowRight", "End", "v", "v", "s", "t")
        assert own.value("document.querySelectorAll('#frame text').length") > 5, name
        assert own.value("""page.runs[0].launches.every((each, launch) =>
            Object.keys(each.blocks).slice(0, 4).every(block =>
                shownOf({...state, launch, block}).spoiled === undefined))"""), name
