"""docs/gpus.md says of each GPU what a program prints there: the same figures by the same rule, as
tests/host/test_peak.cpp has worked by hand for three GPUs."""

import re

from docs import gpus
from shared import table
from suite import ROOT

HAND = re.findall(r'on\("(.*?)", \d+, (\w+)\), "(\w+)(?: products)?, (\S+) ms at 90%"',
                  (ROOT / "tests/host/test_peak.cpp").read_text())
COLUMNS = {"product": "3, 4: fp16", "talk": "5, 6 `--talk`: memory", "gelu": "7, 8, 9: memory"}


def test_the_page_has_what_is_worked_by_hand():
    tables = re.findall(r"(?:^\|.*\n)+", (ROOT / "docs/gpus.md").read_text(), re.MULTILINE)
    rows = {row[0]: dict(zip(head, row)) for head, _, *rows in (
        [line.strip("| ").split(" | ") for line in text.splitlines()] for text in tables)
        for row in rows}
    assert len(HAND) == 9
    for gpu, problem, what, ms in HAND:
        title = COLUMNS[problem]
        other = f" ({what})" * (what != title.split(": ")[1])
        assert rows[table.short(gpu)][title] == ms + other


def test_a_rate_that_nobody_states_is_not_guessed(monkeypatch):
    """A laptop without GB/s, where only memory could be slower; GB10 without fp32, where memory
    is; and Turing without bf16."""
    product = {"dtype": "fp32", "flops": 2e12, "least_bytes": 1e9, "memory_bound": False}
    traffic = {**product, "flops": 1e9, "memory_bound": True}
    monkeypatch.setattr(gpus.data_sheets, "sheets", lambda: {
        "laptop": {"fp32": 20}, "GB10": {"GB/s": 250}})
    assert gpus.limit("laptop", product) == ("fp32", 100 / 0.9)
    assert gpus.limit("laptop", traffic) is None
    assert gpus.limit("GB10", traffic) == ("memory", 4 / 0.9)
    assert gpus.limit("GB10", product) is None
