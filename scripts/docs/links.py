"""Links from documents to functions: [f](../src/x.cu#L1-L9) names the lines that hold f now.
And where the notebook finds the programs: at CITATION.cff's `repository-code`."""

import re

from shared.command_line import PROJECT, USAGE, Stop, read_text

LINK = re.compile(r"\[(?P<name>\w+)\]\((?P<path>[^)#\s]+\.cuh?)#L\d+-L\d+\)")


def updated(text, document):
    """A document's text with the lines of all its links as they are."""

    def write(link):
        name, path = link["name"], link["path"]
        file = document.parent / path
        found = list(definitions(read_text(file), name))[:1] if file.is_file() else None
        if not found:
            raise Stop(f"{document.name}: there is no function {name} in {path}", USAGE)
        return "[{}]({}#L{}-L{})".format(name, path, *found[0])

    return LINK.sub(write, text)


def address():
    """Where this repository is published; empty where nobody has filled that in."""
    found = re.search(r"^repository-code: *[\"']?(https?://[^\s\"'\\]+)",
                      read_text(PROJECT / "CITATION.cff"), re.MULTILINE)
    return found[1] if found else ""


def to_colab():
    """README's sentence. Colab opens what is on GitHub by a link; from elsewhere one uploads it."""
    if not address():
        return ("Google Colab lends one: at colab.research.google.com choose *Upload*, and the"
                " [notebook](docs/colab.ipynb).\n(It finds the programs once this repository's"
                " address is in [CITATION.cff](CITATION.cff) as\n`repository-code`, and"
                " `scripts/update_docs.py` was run.)")
    found = re.match(r"https://github\.com/([^/]+/[^/]+?)(\.git)?/?$", address())
    at = f"https://colab.research.google.com/github/{found[1]}/blob/main/" if found else ""
    return f"Google Colab lends one: [open the notebook there]({at}docs/colab.ipynb)."


def in_notebook(text):
    return re.sub(r'(_REPOSITORY\\", \\").*?(?=\\")', lambda found: found[1] + address(), text)


def definitions(source, name):
    """(first, last) line, from 1, of each function of that name: from its template and attributes
    to the } in the column of its head."""
    lines = source.splitlines()
    for found in re.finditer(rf"\b{re.escape(name)}\(", source):
        if not re.match(r"[\s\w]*\{", source[_after_parentheses(source, found.end()):]):
            continue  # a call, or a declaration alone
        first = source.count("\n", 0, found.start())
        while first > 0 and _goes_on(lines[first - 1]):
            first -= 1
        end = lines[first][:len(lines[first]) - len(lines[first].lstrip())] + "}"
        yield first + 1, next(i for i in range(first, len(lines)) if lines[i].startswith(end)) + 1


def _after_parentheses(source, start):
    """Where the parenthesis that was opened before `start` is closed, and one further."""
    depth = 1
    while depth and start < len(source):
        depth += {"(": 1, ")": -1}.get(source[start], 0)
        start += 1
    return start


def _goes_on(line):
    """Whether a function's head goes on from this line to the next."""
    return line.lstrip().startswith("template <") or bool(
        re.search(r"[\w)]\s*$", line) and not re.match(r"\s*(//|#)", line))
