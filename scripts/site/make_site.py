"""Makes build/site of build/site_pages by Zensical, and says which links lead nowhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

from docs import links

PAGES, SITE = Path("build/site_pages"), Path("build/site")
REFERENCE = "tools measuring limits install figures outputs results glossary"
ADDRESS = re.sub(r"(\.git)?/?$", "", links.address())
CHANGES = [  # GitHub shows the first as is meant, Zensical the second
    (r"^<!-- watch (\w+) -->$", '<iframe src="WATCH/\\1.html"></iframe>\n\nClick into it: ? lists '
     r"the keys. [Open it alone](WATCH/\1.html)"),
    ("<details>", '<details markdown="1">'),
    (r"^( *```\w+) [^\n]*$", r"\1"),
    (r'<picture>\s*<source[^>]* srcset="(.*?)">\s*<img alt="(.*?)"\s+src="(.*?)">\s*</picture>',
     r"![\2](\3#only-light)![\2](\1#only-dark)")]


def menu():
    def under(folder):
        return sorted((str(page.relative_to(PAGES)) for page in PAGES.glob(f"{folder}/*.md")),
                      key=lambda name: (not name.endswith("README.md"), name))

    docs = {**{Path(name).stem: name for name in under("docs")}, "results": "results/README.md"}
    pages = {"Home": "README.md", "First hour": docs.pop("first_hour"), "GPUs": docs.pop("gpus"),
             "The path": under("docs/chapters"), "Exercises": docs.pop("exercises"),
             "Records": under("docs/bonuses"), "Experiments": under("docs/experiments"),
             "The lecture": [{"Run sheets": docs.pop("lecture")}, *under("docs/slides")]}
    reference = [{name.capitalize(): docs[name]} for name in sorted(docs, key=REFERENCE.find)]
    pages["Reference"] = [*reference, *under("build/watch")]
    return [{title: listed} for title, listed in pages.items() if listed]


def lead(page, anchors):
    """Makes a page's links lead to what the site or the repository has; returns the others."""
    wrong = []

    def there(found):
        path, _, anchor = found[2].partition("#")
        to = Path(os.path.normpath(page.parent / path)) if path else page
        name = os.path.relpath(to, SITE)
        copy = SITE / f"files/{name}.txt"
        known = to.is_file() or (to / "index.html").is_file()
        if ":" in path or known and anchor in anchors.get(to, [anchor]):
            return found[0]
        if known or not os.path.exists(name):
            wrong.append(f"{page} has a link that leads nowhere: {found[2]}")
        elif not ADDRESS:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text("\n".join(sorted(os.listdir(name))) if os.path.isdir(name)
                            else Path(name).read_text("utf-8"), "utf-8")
        new = f"{ADDRESS}/blob/main/{name}" if ADDRESS else os.path.relpath(copy, page.parent)
        return f'{found[1]}"{new}{found[2][len(path):]}"'

    text = re.sub(r'(\s(?:href|src)=)"([^"]*)"', there, page.read_text("utf-8"))
    page.write_text(text, "utf-8")
    return wrong


def main():
    for page in PAGES.rglob("*.md"):
        text, watch = page.read_text("utf-8"), os.path.relpath(PAGES / "build/watch", page.parent)
        for github, zensical in CHANGES:
            text = re.sub(github, zensical.replace("WATCH", watch), text, flags=re.M | re.S)
        page.write_text(text, "utf-8")
    config = Path("scripts/site/zensical.yml").read_text("utf-8")
    Path("build/site.yml").write_text(f"{config}nav: {menu()}\n", "utf-8")
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "-cf", "build/site.yml"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(done.stdout)
    (SITE / "404.html").unlink()
    copied = {SITE / page.relative_to(PAGES) for page in PAGES.rglob("*.html")}
    pages = sorted({*SITE.rglob("*.html")} - copied)
    anchors = {page: {"", *re.findall(r'\sid="(.*?)"', page.read_text("utf-8"))} for page in pages}
    sys.exit("\n".join(wrong for page in pages for wrong in lead(page, anchors)) or 0)


main()
