"""What cuBLAS and CUTLASS put into a kernel's name. CUTLASS documents its names, cuBLAS does not:
of those, only what the grids, shared memory and types of known calls confirm is read."""

import re

WORDS = {"h": "fp16", "f16": "fp16", "t": "bf16", "s": "fp32", "f32": "fp32", "tf32": "TF32",
         "tn": "A transposed", "nt": "B transposed", "tt": "A and B transposed",
         "relubias": "bias, ReLU", "gelubias": "bias, GELU"}
PHRASES = {  # of the patterns' groups, in this order
    "input": "{} in", "product": "{} products", "sum": "{} sums", "output": "{} out",
    "plain": "no tensor cores", "tile": "tile {}", "step": "step {}", "stages": "stages {}",
    "cluster": "cluster {}", "split": "split k", "epilogue": "{}", "operands": "{}",
    "reduce": "adds up a gemm's sums over parts of k", "vector": "a matrix times a vector"}
TYPE = "fp16|bf16|f16|tf32|f32|i8|i32"
PATTERNS = (
    r"(?P<reduce>splitKreduce_kernel|sm\d+_xmma_gemm_.*_split_k_kernel)",
    r"(?P<vector>gemv(2[NT]|NSP)_kernel)",
    # cuBLAS on Hopper: nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_splitK_relubias_NNT
    r"nvjet_(sm90_)?(?P<input>[ht])(?P<sum>s)(?P<output>[hst])_(?P<tile>\d+x\d+)_(?P<step>\d+)x"
    r"(?P<stages>\d+)_(?P<cluster>\d+x\d+)_.*?((?P<split>splitK)_)?((?P<epilogue>[a-z]*bias)_)?"
    r"(NN|(?P<operands>[NT]{2}))[NT]$",
    # CUTLASS, and cuBLAS since Turing: cutlass_80_tensorop_f16_s16816gemm_f16_128x64_32x6_nn_align8
    # and ampere_h16816gemm_128x64_ldg8_stages_64x3_nn
    rf"(cutlass(_\d+)?_(simt|(wmma_)?tensorop)|volta|turing|ampere)_((?P<output>{TYPE})_)?"
    rf"(?P<sum>[hs])((?P<instruction>\d+)|(?P<plain>))gemm_(relu_)?((?P<input>{TYPE})_)?(?P<tile>"
    r"\d+x\d+)_(.*?_)??((?P<step>\d+)x(?P<stages>\d+)_)?(nn|(?P<operands>[nt]{2}))(_align\d+)?$",
    # cuBLAS: sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_...
    rf"sm\d+_xmma_gemm_(?P<input>{TYPE})(?P<output>{TYPE})_((?P=input)|(?P<product>{TYPE}))"
    rf"(?P<sum>{TYPE})_\w+?_(nn|(?P<operands>[nt]{{2}}))_[nt]_tilesize(?P<tile>\d+x\d+)x"
    r"(?P<step>\d+)(_stage(?P<stages>\d+))?(?P<plain>.*_ffma_)?")


def meaning(name):
    """What a kernel's short name says, in words; "" where nothing is known of it."""
    found = next(filter(None, (re.match(pattern, name) for pattern in PATTERNS)), None)
    said = {group: WORDS.get(text.lower(), text) for group, text in found.groupdict().items()
            if text is not None} if found else {}
    if "sum" in said:
        said = {"input": said["sum"], "output": said["sum"], **said}
        if "instruction" in said and said["input"] == "fp32":  # tensor cores round it
            said["product"] = "TF32"
    return ", ".join(PHRASES[group].format(said[group]) for group in PHRASES if group in said)
