"""slides.py: the decks are what their sources say, each slide fits its page, and a marker that
finds nothing is an error."""

import re
import time

import pytest

import browser
import slides
from fakes import python_with, script
from shared import measurements, table
from shared.command_line import Stop
from suite import ROOT, USAGE, WRONG, assert_one_line

pytestmark = pytest.mark.full

LECTURE = (ROOT / "docs/lecture.md").read_text()
SOURCES = {path.stem: path for path in (ROOT / "docs/slides").glob("*.md")}
DECKS = {name: ROOT / f"docs/slides/{name}.html" for name in SOURCES}


def python_with_pandoc():
    return python_with("pandoc", "import matplotlib, segno, pypandoc; pypandoc.get_pandoc_path()")


# --- The decks ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the decks, made anew."""
    folder = tmp_path_factory.mktemp("slides")
    done = script("slides.py", "--out", folder, python=python_with_pandoc())
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def versions(text):
    return re.search(r'name="generator" content="(.*), (.*)"', text).groups()


@pytest.mark.parametrize("name", DECKS)
def test_a_deck_is_what_its_sources_say(made, name):
    """Where matplotlib is another one, its plots may differ in their last digits: all else must
    not."""
    old, new = (path.read_text() for path in (DECKS[name], made / f"{name}.html"))
    (old_pandoc, old_plots), (new_pandoc, new_plots) = versions(old), versions(new)
    if old_pandoc != new_pandoc:
        pytest.skip(f"the slides were made with {old_pandoc}, and this is {new_pandoc}")
    if old_plots != new_plots:
        old, new = (re.sub("base64,[^\"]*|matplotlib [0-9.]*", "", text) for text in (old, new))
    assert old == new, "run scripts/slides.py"


@pytest.mark.parametrize("name", DECKS)
def test_a_deck_needs_no_network(name):
    text = DECKS[name].read_text()
    assert len(text) < 2e6
    for file in (ROOT / "scripts/slides/reveal").iterdir():
        text = text.replace(file.read_text(), "")  # it links to its makers
    links = re.findall(r'(?:src|href)="([^"]{0,30})', text)
    assert all(link.startswith(("data:image/svg+xml;base64,", "#")) for link in links)
    assert not re.search(r"https?://|@import|url\((?!#)", re.sub(r"base64,[^\"]*", "", text))
    assert "{{" not in text and "{." not in text


@pytest.mark.parametrize("name, minutes", [("talk", 20), ("lecture", 40), ("course", 90)])
def test_a_deck_has_the_steps_and_minutes_of_its_run_sheet(name, minutes):
    """45 minutes keep five in reserve."""
    sheet = name.capitalize()
    said = re.findall(rf"^### {sheet} (\d): .*\n\n\*\*Minutes\*\* (\d+)", LECTURE, re.MULTILINE)
    assert sum(int(some) for _, some in said) == minutes
    assert re.findall(rf"^{sheet} (\d) begins here: (\d+) minutes?\b", SOURCES[name].read_text(),
                      re.MULTILINE) == said
    spent = []
    for heading, attributes, rest in slides_of(name):
        if re.search(rf"^{sheet} \d begins here", rest, re.MULTILINE):
            spent.append(0)
        spent[-1] += float(re.search(r"minutes=([\d.]+)", attributes)[1])
    assert spent == [int(some) for _, some in said]


def slides_of(name):
    """[(heading, attributes, the rest)] of a deck's source."""
    text = SOURCES[name].read_text()
    return [re.match(r"(.*?) \{([^}]*)\}\n(.*)", part, re.DOTALL).groups()
            for part in re.split(r"^# ", text, flags=re.MULTILINE)[1:]]


@pytest.mark.parametrize("name", DECKS)
def test_no_measured_figure_is_typed_by_hand(name):
    """Outside of markers, code and notes no number stands beside a unit of the results."""
    for heading, _, rest in slides_of(name):
        rest = rest.partition("::: notes")[0]
        rest = re.sub(r"^```.*?^```$|\{\{.*?\}\}", "", rest, flags=re.MULTILINE | re.DOTALL)
        typed = re.search(r"\d[\d.,]*\s?(x\b(?! \d)|%|TFLOP|GB|ms\b)", rest)
        assert not typed, f"{heading}: {typed[0]}"


# What a page can say of each of its slides. Text's boxes are of its lines, not of its paragraphs.
LOOK = """slides.map((slide, i) => {
    Reveal.slide(i);
    const faults = [], page = slide.getBoundingClientRect();
    if (slide.scrollWidth > 1280 || slide.scrollHeight > 720)
        faults.push(`holds ${slide.scrollWidth} x ${slide.scrollHeight}`);
    const hidden = slide.matches(".picture") ? ".notes, h1" : ".notes";
    const walker = document.createTreeWalker(slide, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode, words = node.textContent.trim();
        if (!words || node.parentElement.closest(hidden)) continue;
        const size = parseFloat(getComputedStyle(node.parentElement).fontSize);
        if (size < 24) faults.push(`${size} px: ${words}`);
        const range = document.createRange();
        range.selectNodeContents(node);
        for (const box of range.getClientRects()) {
            const number = box.right > page.right - 70 && box.bottom > page.bottom - 40;
            if (box.left < page.left + 20 || box.right > page.right - 15
                || box.bottom > page.bottom - 10 || number)
                faults.push(`outside: ${words.slice(0, 60)}`);
        }
    }
    for (const pre of slide.querySelectorAll("pre")) {
        if (pre.scrollWidth > pre.clientWidth) faults.push("code is too wide");
        if (pre.textContent.trim().split("\\n").length > 25) faults.push("code is too long");
        if (!pre.textContent.trim()) faults.push("an empty excerpt");
    }
    for (const image of slide.querySelectorAll("img")) {
        const box = image.getBoundingClientRect();
        if (!image.complete || !image.naturalWidth) faults.push("a broken picture");
        const [width, height] = slide.matches(".picture") ? [1200, 650] : [900, 540];
        if (box.width < width || box.height < height) faults.push("a small picture");
        if (box.right > page.right || box.bottom > page.bottom) faults.push("a picture outside");
    }
    if (slide.matches(".picture, .drawing") !== Boolean(slide.querySelector("img, .drawn")))
        faults.push("a picture without its class, or the reverse");
    if (page.width !== 1280 || page.height !== 720) faults.push("no page");
    for (const block of slide.querySelectorAll("[data-lit]"))
        for (const text of block.dataset.lit.split(/;|, /))
            if (!block.textContent.includes(text)) faults.push("lights nothing: " + text);
    return [slide.querySelector("h1").textContent, faults];
})"""


@pytest.mark.skipif(not browser.CHROMIUM, reason="Chromium is not installed")
def test_every_slide_fits_its_page(tmp_path):
    with browser.page(tmp_path / "profile") as page:
        for name, path in DECKS.items():
            page.open(path, 1280, height=720)
            assert {url for url in page.requested() if not url.startswith("data:")} == {
                path.as_uri()}
            found = page.evaluate(LOOK)
            assert [heading for heading, _ in found] == page.evaluate(
                "[...document.querySelectorAll('h1')].map(heading => heading.textContent)")
            assert len(found) == len(slides_of(name))
            faults = {heading: said for heading, said in found if said}
            assert not faults, f"{name}: {faults}"


@pytest.mark.skipif(not browser.CHROMIUM, reason="Chromium is not installed")
def test_a_deck_is_shown_page_by_page(tmp_path):
    """Keys turn pages, any screen shows a whole slide, and print has them all."""
    def press(key, code):
        page.evaluate(f"""document.dispatchEvent(new KeyboardEvent('keydown',
            {{key: '{key}', code: '{key}', keyCode: {code}, bubbles: true}}))""")
        return page.evaluate("""[Reveal.getIndices().h,
            slides.filter(slide => getComputedStyle(slide).opacity === '1').length]""")

    with browser.page(tmp_path / "profile") as page:
        page.open(DECKS["talk"], 1280, height=720)
        last = len(slides_of("talk")) - 1
        assert press("PageDown", 34) == [1, 1] and press("PageDown", 34) == [2, 1]
        assert press("PageUp", 33) == [1, 1] and press("End", 35) == [last, 1]
        assert press("PageDown", 34)[0] == last and press("Home", 36)[0] == 0
        assert press(".", 190) and page.evaluate("Reveal.isPaused()")  # black
        assert press("b", 66) and not page.evaluate("Reveal.isPaused()")
        page.evaluate("Reveal.slide(3)")  # code, whole at first
        other = "document.querySelectorAll('.present .other').length"
        assert page.evaluate(other) == 0
        assert press("PageDown", 34)[0] == 3 and page.evaluate(other) > 0
        notes = page.evaluate("slides.map(slide => slide.querySelector('.notes').textContent)")
        assert "Until minute 1.5." in notes[1] and "Four percent of what?" in notes[0]
        for width, height in [(1920, 1080), (1024, 768), (390, 844)]:
            page.open(DECKS["talk"], width, height=height)
            box = page.evaluate("""(box => [box.left, box.top, box.right, box.bottom])(
                Reveal.getCurrentSlide().getBoundingClientRect())""")
            assert min(box) >= -1 and box[2] <= width + 1 and box[3] <= height + 1
        for query, pages in (("?print-pdf", 1), ("?print-pdf&showNotes=separate-page", 2)):
            page.command("Page.navigate", url=DECKS["talk"].as_uri() + query)
            while not page.evaluate("document.querySelectorAll('.pdf-page').length"):
                time.sleep(0.1)
            pdf = page.pdf(preferCSSPageSize=True, printBackground=True)
            assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == pages * (last + 1)


# --- Markers ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def figures():
    return slides.Figures(measurements.read(ROOT / "results/nvidia-h200.csv"))


def test_figures_are_those_of_the_results(figures):
    [row] = [row for row in figures.rows if row["program"] == "1_matmul_basic" and row["n"] == 4096]
    assert figures.text("1 matmul_basic 4096 tflops") == table.number(row["tflops"])
    assert figures.text("1_matmul_basic matmul_basic 4096 fp32 median_ms") == table.number(
        row["median_ms"])
    assert figures.text("1 matmul_basic 4096 of_peak") == f"{100 * row['tflops'] / 67:.2g}%"
    faster = figures.text("2 matmul_sharedmem over 1 matmul_basic 4096 tflops")
    assert re.fullmatch(r"\d\.\d\dx", faster)
    assert figures.text("6 six_kernels S1024 launches") == "6"
    assert figures.text("8 chain 4096x131072 fp16 launches") == "5"
    assert figures.text("peak fp32") == "67" and figures.text("peak fp32 per byte") == "14"
    assert figures.text("gpu") == "NVIDIA H200" and figures.text("about SMs") == "132"


@pytest.mark.parametrize("marker", [
    "", "1", "99 matmul_basic 4096 tflops", "1 matmul_basic 4097 tflops", "1 bogus 4096 tflops",
    "1 matmul_basic 4096 bogus", "1 matmul_basic 4096 gb_per_s", "1 matmul_basic 4096 kernel",
    "8 chain 4096 gb_per_s",  # fp32 or fp16?
    "1 matmul_basic over bogus 4096 tflops", "peak fp4", "about bogus",
])
def test_a_figure_that_is_not_there_is_an_error(figures, marker):
    with pytest.raises(Stop) as stop:
        figures.text(marker)
    assert stop.value.status == USAGE and "\n" not in str(stop.value)


def test_code_is_that_of_the_source():
    file = "src/2_matmul_sharedmem.cu"
    source = (ROOT / file).read_text()
    whole = slides.excerpt(file, "matmul_sharedmem")
    assert whole in source and whole.startswith("__global__ void") and whole.endswith("\n}")
    part = slides.excerpt(file, "matmul_sharedmem", "float sum = 0;", "C[row")
    assert part.splitlines()[0] == "float sum = 0;" and part.endswith("= sum;")
    assert slides.excerpt("src/8_softmax.cu", "online", "", "T* out").splitlines()[0] == (
        "template <class T>")
    hinted = slides.excerpt("src/6_gating_fused.cu", "fused_talk_tile")
    assert hinted.startswith("[[cutile::hint(") and hinted.endswith("\n}")
    picture = slides.excerpt(file, "", "B: [N, N]", "^//$", comment=True)
    assert "//" not in picture and picture.endswith("+----+----+----+  +----+----+----+")


@pytest.mark.parametrize("marker", [
    "src=src/bogus.cu", "kernel=matmul_basic", "src='",
    "src=src/1_matmul_basic.cu kernel=matmul_basic bogus=1",
    "src=src/1_matmul_basic.cu kernel=matmul_basic .bogus",
    "src=src/1_matmul_basic.cu kernel=matmul_basic width=x",
    "src=src/1_matmul_basic.cu kernel=bogus", "src=src/1_matmul_basic.cu from=bogus",
    "src=src/1_matmul_basic.cu from=cudaMalloc",
    "src=src/1_matmul_basic.cu kernel=matmul_basic to=bogus",
    "src=src/1_matmul_basic.cu",  # more lines than a slide holds
])
def test_code_that_is_not_there_is_an_error(marker):
    with pytest.raises(Stop) as stop:
        slides.code(re.match("(.*)", marker))
    assert stop.value.status == USAGE and "\n" not in str(stop.value)


@pytest.mark.parametrize("arguments", [["--bogus"], ["bogus"], ["--results", "/nowhere.csv"]],
                         ids=lambda arguments: arguments[0])
def test_bad_arguments_end_with_one_line(arguments):
    done = script("slides.py", *arguments)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert_one_line(done.stderr, "slides.py")


def test_a_deck_that_is_out_of_date_is_named_in_one_line(tmp_path):
    (tmp_path / "talk.html").write_text("old")
    done = script("slides.py", "--check", "--out", tmp_path, "talk", python=python_with_pandoc())
    assert done.returncode == WRONG
    assert_one_line(done.stderr, "slides.py")
    assert (tmp_path / "talk.html").read_text() == "old"


def test_a_picture_that_is_not_there_is_an_error():
    pictures = slides.Pictures.__new__(slides.Pictures)
    pictures.plots = {}
    for kind in ("plot", "picture"):
        with pytest.raises(Stop):
            re.sub(slides.IMAGE, pictures.image, f"![Some sentence]({kind}:bogus)")


@pytest.mark.parametrize("text", [
    "# No such slide {from=course minutes=1}\n", "# One thread {from=bogus minutes=1}\n",
    "Talk 9 begins here\n:::", "``` {.draw}\nbogus 1 2\n```", "``` {.draw}\nbox 1 2 x 4\n```"])
def test_what_a_deck_cannot_take_is_an_error(text):
    with pytest.raises(Stop):
        slides.filled(text, None, None)


def test_the_repositorys_address_is_a_code(tmp_path, monkeypatch):
    pytest.importorskip("segno")
    monkeypatch.setattr(slides, "PROJECT", tmp_path)
    for codes, start in enumerate(("# ", "")):
        (tmp_path / "CITATION.cff").write_text(f"{start}repository-code: https://example.org")
        assert len(slides.Pictures.qr()) == codes
