"""How a peer is timed: as src/demo/measure.cu times our kernels."""

import time
from statistics import median

import torch

# The same as our programs: seconds of rest, in which the GPU idles, and of warm-up; samples and
# seconds of sampling, at least; seconds after which 3 samples are enough.
REST_S, WARM_UP_S, SAMPLES, SAMPLING_S, LONGEST_SAMPLING_S = 0.5, 0.2, 30, 0.5, 5


def samples(run, device):
    """The times of run() on the GPU, in milliseconds, with a cold cache each time. On the CPU,
    where they say little, there are three."""

    def host_seconds(work):
        """The time that enqueueing the work takes, and the time until it is done."""
        start = time.perf_counter()
        work()
        enqueued = time.perf_counter() - start
        if device == "cuda":
            torch.cuda.synchronize()
        return enqueued, time.perf_counter() - start

    if device != "cuda":
        return [1000 * host_seconds(run)[1] for _ in range(3)]
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    flushed = torch.empty(max(2 * cache, 256 << 20), dtype=torch.int8, device="cuda")
    torch.cuda.synchronize()
    time.sleep(REST_S)
    warm_up = time.perf_counter()
    enqueueing, flushing = [], []
    while time.perf_counter() - warm_up < WARM_UP_S or len(enqueueing) < 3:
        enqueueing.append(host_seconds(run)[0])
        flushing.append(host_seconds(lambda: flushed.fill_(1))[1])

    # Python may enqueue slower than the GPU works. Then the GPU would wait between the two events,
    # and the sample would hold Python's time. So the cache is overwritten not once but as often as
    # it takes to keep the GPU busy until Python has enqueued everything.
    times = 1 + int(1.5 * median(enqueueing) / min(flushing))

    def overwrite(value):
        for _ in range(times):
            flushed.fill_(value)

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found, start = [], time.perf_counter()
    overwrite(0)
    while True:
        begin.record()
        run()
        end.record()
        end.synchronize()
        # Enqueue this before anything else. Otherwise the GPU would rest longer between samples
        # than it does in our programs, and would run the next sample cooler.
        overwrite(len(found) % 100)
        found.append(begin.elapsed_time(end))
        seconds = time.perf_counter() - start
        enough = len(found) >= SAMPLES and seconds >= SAMPLING_S
        if len(found) >= 3 and (enough or seconds >= LONGEST_SAMPLING_S):
            return found
