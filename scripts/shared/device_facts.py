#!/usr/bin/env python3
"""What the driver says of the first GPU that CUDA_VISIBLE_DEVICES leaves. Started, prints its SMs
and its memory, which nvidia-smi does not tell of every GPU, as lines `name: value`; nothing where
there is none."""

import ctypes

MULTIPROCESSOR_COUNT, MAJOR, MINOR = 16, 75, 76  # CUdevice_attribute


def first_gpu():
    """(name, compute capability times ten, SMs, bytes of memory). Raises OSError."""
    driver, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        raise OSError("no GPU")
    name, memory, values = ctypes.create_string_buffer(256), ctypes.c_size_t(), []
    for what in (MULTIPROCESSOR_COUNT, MAJOR, MINOR):
        values.append(ctypes.c_int())
        driver.cuDeviceGetAttribute(ctypes.byref(values[-1]), what, device)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    sms, major, minor = (value.value for value in values)
    return name.value.decode(), 10 * major + minor, sms, memory.value


if __name__ == "__main__":
    try:
        _, _, sms, memory = first_gpu()
        print(f"SMs: {sms}\nmemory: {memory / 2**30:.1f} GiB")
    except OSError:
        pass
