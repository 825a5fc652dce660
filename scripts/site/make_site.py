#!/usr/bin/env python3
"""Makes build/site of README.md, docs/, results/README.md and the pages of scripts/watch.sh. To look
at it: python3 -m http.server --directory build/site, then localhost:8000 in a browser.

The line <!-- watch NAME --> in a page becomes that preset's page. Links to other files lead to the
repository, where CITATION.cff has its address, else to copies. Nothing comes from another host.

Exit status: 0; 2 usage; 3 an error, also a link or a picture that leads nowhere.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

from docs import links
from shared import command_line
from shared.command_line import PROJECT, USAGE, Stop

PAGES, SITE = PROJECT / "build/site_pages", PROJECT / "build/site"
REFERENCE = "tools measuring limits install figures outputs glossary"
CHANGES = [  # GitHub shows the first as is meant, Zensical the second
    (r"^<!-- watch (\w+) -->$", '<iframe src="WATCH/\\1.html"></iframe>\n\nClick into it: ? lists '
     r"the keys. [Open it alone](WATCH/\1.html)"),
    ("<details>", '<details markdown="1">'),
    (r"^( *```\w+) [^\n]*$", r"\1"),
    (r'<picture>\s*<source[^>]* srcset="(.*?)">\s*<img alt="(.*?)"\s+src="(.*?)">\s*</picture>',
     r"![\2](\3#only-light)![\2](\1#only-dark)"),
    (r"^( *```.*?^ *```)$|^([^\s|>#<*-][^\n]*\n)(?=[-*] |1\. )",  # a list without a blank line
     lambda found: found[1] or found[2] + "\n")]


def add(name, text):
    """Adds a page. A chapter's title gets its number."""
    number = re.search("/0*([0-9]+)-", name)
    text = re.sub(r"\A# (?=\D)", f"# {number[1]}. ", text) if number else text
    for github, zensical in CHANGES:
        text = re.sub(github, zensical, text, flags=re.M | re.S)
    text = text.replace("WATCH", "../" * name.count("/") + "build/watch")
    (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
    command_line.write_text(PAGES / name, text)


def menu():
    def under(folder):
        return sorted(str(page.relative_to(PAGES)) for page in PAGES.glob(f"{folder}/*.md"))

    docs = {Path(name).stem: name for name in under("docs")}
    first_hour, exercises, lecture = map(docs.pop, ("first_hour", "exercises", "lecture"))
    return [{"Home": "README.md"}, {"First hour": first_hour}, {"The path": under("docs/chapters")},
            {"Exercises": exercises}, {"Records": under("docs/bonuses")},
            {"Experiments": under("docs/experiments")},
            {"The lecture": [{"Run sheets": lecture}, *under("docs/slides")]},
            {"Reference": [*({name.capitalize(): docs[name]}
                             for name in sorted(docs, key=REFERENCE.find)),
                           *under("results"), *under("build/watch")]}]


def lead(page, anchors, wrong):
    """Makes a page's links lead to what the site or the repository has; collects the others."""
    def there(found):
        path, _, anchor = found[2].partition("#")
        to = Path(os.path.normpath(page.parent / path)) if path else page
        name = os.path.relpath(to, SITE)
        file, shown = PROJECT / name, to.suffix in (".html", ".svg", ".css")
        if ":" in path or (to / "index.html").is_file() or anchor in anchors.get(to, ()):
            return found[0]
        copy = to if shown else SITE / f"files/{name}.txt"
        if to in anchors or not (to.exists() or file.exists()):
            wrong.append(f"{page.relative_to(SITE)} to {found[2]}")
        elif file.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes("\n".join(sorted(os.listdir(file))).encode() if file.is_dir() else file.read_bytes())
        if to.exists() or shown: 
            return found[0]
        if links.address():
            return f'{found[1]}"{links.address()}/blob/main/{name}#{anchor}"'
        return f'{found[1]}"{os.path.relpath(copy, page.parent)}"'

    text = page.read_text("utf-8")
    page.write_text(re.sub(r'(\s(?:href|src)=)"([^"]*)"', there, text), "utf-8")


@command_line.reporting("site.sh")
def main(arguments):
    if arguments:
        raise Stop("no argument is expected (--help shows the usage)", USAGE)
    command_line.run_with("site.sh", ["zensical"], "ensure_site")
    for folder in (PAGES, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    presets = re.findall(r"^(\w+) +(.*)", command_line.output("scripts/watch.sh", "--list")[1], re.M)
    command_line.set_up("site.sh", "".join(f"scripts/watch.sh --preset {name} >&2\n" for name, _ in presets))
    for pattern in ("README.md", "CONTRIBUTING.md", "results/*.md", "docs/*.md", "docs/[!s]*/*.md", "tests/data/*/*.md"):
        for page in PROJECT.glob(pattern):
            add(str(page.relative_to(PROJECT)), page.read_text("utf-8"))
    decks = [(path.stem, path.stem.capitalize()) for path in sorted(PROJECT.glob("docs/slides/*.html"))]
    for name, title, listed in (("docs/slides", "Slides", decks), ("build/watch", "Kernels to watch", presets)):
        add(f"{name}/index.md", f"# {title}\n\n" + "".join(f"- [{words}]({file}.html)\n" for file, words in listed))
    config = (Path(__file__).parent / "zensical.yml").read_text("utf-8")
    nav = [each for each in menu() if all(each.values())]
    (PROJECT / "build/site.yml").write_text(f"{config}nav: {json.dumps(nav)}\n", "utf-8")
    command_line.set_up("site.sh", f"{sys.executable} -m zensical build --clean -f build/site.yml >&2")
    (SITE / "404.html").unlink()
    wrong, pages = [], sorted(SITE.rglob("*.html"))
    anchors = {page: {"", *re.findall(r'\sid="([^"]*)"', page.read_text("utf-8"))} for page in pages}
    for page in pages:
        lead(page, anchors, wrong)
    if wrong:
        raise Stop(f"{len(wrong)} links lead nowhere: {', '.join(wrong)}")
    print("build/site: python3 -m http.server --directory build/site shows it at localhost:8000")


if __name__ == "__main__":
    command_line.run(main, __doc__)
