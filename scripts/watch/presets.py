"""The pages of scripts/watch.sh --preset. `exercise` makes the second version of the program, and
`look` is how the page begins."""

PRESETS = {
    "sectors": {
        "program": "1", "n": "64", "exercise": 2,
        "question": "A warp's 32 lanes load at once: how many sectors of 32 bytes does that take?",
        "look": {"warp": 5, "view": "lanes"},
    },
    "trips": {
        "program": "5", "n": "64", "with": "6",
        "question": "How many bytes go to memory and back between six kernels, and with one?",
        "look": {"view": "trips"},
    },
    "tiles": {
        "program": "2", "n": "64", "with": "1",
        "question": "How many threads load each number of A and B from memory?",
        "look": {"view": "both"},
    },
    "barrier": {
        "program": "2", "n": "64", "exercise": 6,
        "question": "What does a warp do that is early, and what if nobody stops it?",
        "look": {"slow": 1},
    },
}
