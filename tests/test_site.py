"""site.sh: every page is whole, of one host, as wide as a phone; search, dark mode, a kernel."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

import browser
from fakes import python_with, script
from suite import ROOT, SKIPPED, VERIFIED, build_lock

pytestmark = [pytest.mark.full, pytest.mark.skipif(not browser.CHROMIUM, reason="no Chromium")]
SITE, CHAPTER = ROOT / "build/site", "docs/chapters/04-shared_memory.html"
LOOK = """[document.body.scrollWidth, [...document.images].every(each => each.naturalWidth),
    [...document.links].map(each => each.href.split("#")[0])]"""
SHOWN = "[...document.images].filter(each => each.offsetWidth).map(each => each.src).join()"
WAIT = "new Promise(done => { const look = () => (%s) ? done(%s) : setTimeout(look, 50); look(); })"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    python_with("Zensical", "import zensical")
    with build_lock():
        done = script("site.sh")
    if done.returncode == SKIPPED:  # with clang++ nothing is counted, so nothing is played
        pytest.skip(done.stderr)
    assert done.returncode == VERIFIED, done.stderr
    http = ThreadingHTTPServer(("localhost", 0), partial(SimpleHTTPRequestHandler, directory=SITE))
    threading.Thread(target=http.serve_forever, daemon=True).start()
    with browser.page(tmp_path_factory.mktemp("site") / "profile") as page:
        yield page, f"http://localhost:{http.server_port}/"


def test_every_page_is_whole_and_of_one_host(site):
    page, address = site
    for name in (str(path.relative_to(SITE)) for path in SITE.rglob("*.html")):
        page.open(address + name, 390)
        assert all(url.startswith((address, "data:")) for url in page.requested()), name
        width, whole, links = page.evaluate(LOOK)
        assert (width, whole) == (390, True) or (ROOT / name).exists(), name  # decks are wider
        assert all((SITE / link[len(address):]).exists() or address not in link for link in links)


def test_a_chapter_is_searched_darkened_and_played(site):
    page, address = site
    page.open(address + CHAPTER, 1280)
    assert "-light.svg" in page.evaluate(SHOWN) and "-dark.svg" not in page.evaluate(SHOWN)
    page.evaluate("document.querySelector('.md-search__button').click();"
                  + WAIT % ("document.activeElement.shadowRoot", "1"))
    page.command("Input.insertText", text="bank conflict")
    links = "[...document.activeElement.shadowRoot.querySelectorAll('a')].map(each => each.href)"
    assert any(CHAPTER in link for link in page.evaluate(WAIT % (links + ".length", links)))
    page.open(address + CHAPTER, 1280, dark=True)
    assert "-dark.svg" in page.evaluate(SHOWN) and "-light.svg" not in page.evaluate(SHOWN)
    frame = "document.querySelector('iframe').contentWindow"
    text = f"({frame}.document.querySelector('#frame') || {{}}).textContent"
    assert "tick 0 of" in page.evaluate(WAIT % (text, text))
    page.evaluate(f"{frame}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'ArrowRight'}}))")
    assert "tick 0 of" not in page.evaluate(text)
