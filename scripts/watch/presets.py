"""The pages of scripts/watch.sh --preset. `exercise` makes the second version of the program,
`words` say what the question's mean, `measure` is what is compared, and `look` is how it begins."""

PRESETS = {
    "sectors": {
        "program": "1", "exercise": 2, "measure": "sectors",
        "question": "How many sectors does a warp's load bring, and how many with x and y swapped?",
        "words": "32 threads are a warp: its lanes load together, in one request. Memory sends "
                 "whole sectors of 32 bytes, 8 numbers. m: swapped. c: both.",
        "look": {"warp": 5, "view": "lanes"},
    },
    "trips": {
        "program": "5", "with": "6",
        "question": "How much do six kernels read and write in memory, and how much does one?",
        "words": "Both compute out = sigmoid(x W1 + b1) * (x W2 + b2), of numbers of 2 bytes.",
        "look": {"view": "trips"},
    },
    "tiles": {
        "program": "1", "with": "2",
        "question": "How often does a block load each number of A and B from global memory?",
        "words": "Left each thread loads all that it needs. Right the threads of a block share "
                 "tiles, in a small memory near them.",
        "look": {"view": "both"},
    },
    "barrier": {
        "program": "2", "exercise": 6,
        "question": "Warp 3 is slow. What do the others do at the barrier, and what without it?",
        "words": "At a barrier, __syncthreads(), each warp of the block waits until all have come. "
                 "m: without it. r: what that does.",
        "look": {"slow": 1},
    },
}
