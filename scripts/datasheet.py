"""What GPUs can do at most, by their datasheets. A figure above that is more likely a mistake in
measuring than a record."""

# Peak TFLOP/s without sparsity (16-bit: tensor cores, fp32 accumulation), and GB/s of the memory.
# Keys are the names that the driver gives. Sources: NVIDIA's datasheets of the H100, H200, A100,
# A10, A30, A40, L4, L40S and T4; for GeForce, appendix A of its Ampere GA102 and Ada whitepapers.
_HOPPER_SXM = {"fp32": 67, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4}
_A100 = {"fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312}
PEAKS = {
    "NVIDIA H200": {**_HOPPER_SXM, "GB/s": 4800},
    "NVIDIA H100 80GB HBM3": {**_HOPPER_SXM, "GB/s": 3350},
    "NVIDIA H100 PCIe": {"fp32": 51, "tf32": 378, "fp16": 756, "bf16": 756, "GB/s": 2039},
    "NVIDIA A100-SXM4-80GB": {**_A100, "GB/s": 2039},
    "NVIDIA A100-SXM4-40GB": {**_A100, "GB/s": 1555},
    "NVIDIA A100 80GB PCIe": {**_A100, "GB/s": 1935},
    "NVIDIA A100-PCIE-40GB": {**_A100, "GB/s": 1555},
    "NVIDIA A40": {"fp32": 37.4, "tf32": 74.8, "fp16": 149.7, "bf16": 149.7, "GB/s": 696},
    "NVIDIA A30": {"fp32": 10.3, "tf32": 82, "fp16": 165, "bf16": 165, "GB/s": 933},
    "NVIDIA A10": {"fp32": 31.2, "tf32": 62.5, "fp16": 125, "bf16": 125, "GB/s": 600},
    "NVIDIA L40S": {"fp32": 91.6, "tf32": 183, "fp16": 362, "bf16": 362, "GB/s": 864},
    "NVIDIA L4": {"fp32": 30.3, "tf32": 60, "fp16": 121, "bf16": 121, "GB/s": 300},
    "Tesla T4": {"fp32": 8.1, "fp16": 65, "GB/s": 320},
    "NVIDIA GeForce RTX 4090": {
        "fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "GB/s": 1008},
    "NVIDIA GeForce RTX 3090": {"fp32": 35.6, "tf32": 35.6, "fp16": 71, "bf16": 71, "GB/s": 936},
}


def doubt(gpu, row):
    """Why a row's figure cannot be right; empty where it can be, or where nobody knows the GPU."""
    peaks = PEAKS.get(gpu, {})
    for column, peak, unit in (("tflops", row["dtype"], "TFLOP/s"), ("gb_per_s", "GB/s", "GB/s")):
        if row[column] is not None and row[column] > peaks.get(peak, float("inf")):
            return f"{row[column]:.5g} {unit} is above the datasheet's {peaks[peak]:g}"
    return ""
