"""Text from elsewhere: names of GPUs, cells of mailed files, what other programs say. It is made
harmless here, once, where it enters: what the scripts pass on may then stand in a terminal, in
HTML, Markdown, CSV and plots, and in the name of a file."""

import re

MARKUP = re.compile(r"[^ -~]|[<>`|*\[\]$\\]")  # of HTML, Markdown and TeX; and what is not ASCII
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.+-]*")
LONGEST_WORD, LONGEST_NAME, LONGEST_TEXT = 40, 64, 400


def printable(text):
    """On one line, and without what steers a terminal. For messages: all else stays as it is."""
    text = str(text)
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def text(words, longest=LONGEST_TEXT):
    """A sentence or a name: what could be markup becomes a ?. No spreadsheet takes it for a
    formula."""
    plain = MARKUP.sub("?", words).lstrip("=+-@ ")
    return plain if len(plain) <= longest else plain[:longest - 3] + "..."


def name(words):
    """The name of a GPU, or of a file."""
    return text(words, LONGEST_NAME)


def is_word(cell):
    """Whether a cell can be the name of a program, a kernel or a data type."""
    return len(cell) <= LONGEST_WORD and WORD.fullmatch(cell) is not None


def file_stem(words):
    """A file's name after a GPU's: "NVIDIA H200" becomes nvidia-h200."""
    return re.sub("[^a-z0-9]+", "-", words.lower()).strip("-") or "gpu"
