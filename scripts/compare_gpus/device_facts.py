#!/usr/bin/env python3
"""Prints what the driver says of the first GPU that CUDA_VISIBLE_DEVICES leaves, as lines
`name: value`: its SMs and its memory, which nvidia-smi does not tell of every GPU. Prints nothing
where there is no driver."""

import ctypes

MULTIPROCESSOR_COUNT = 16  # CUdevice_attribute


def main():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    device, count, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return
    if not driver.cuDeviceGetAttribute(ctypes.byref(count), MULTIPROCESSOR_COUNT, device):
        print(f"SMs: {count.value}")
    if not driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device):
        print(f"memory: {memory.value / 2**30:.1f} GiB")


main()
