"""What the tests of bonus_lora need besides what it declares (see tests/pages.py)."""

from pages import LAST_WGMMA_TWICE, Mutant, SUMS_AS_THEY_WERE, WAITS_LATE, launch_once

BOTH = "appended_hopper appended_early"  # which share their kernels
ALL = BOTH + " recomputed"
SMALL = dict(sizes=(160, 1024), cpu_sizes=(40, 160))

MUTANTS = [
    Mutant("lora_hopper_no_update", BOTH,
           "the main loop ends with x W",
           [("steps = depth + 1;", "steps = depth;")], **SMALL),
    Mutant("lora_hopper_update_from_x", BOTH,
           "the last step multiplies the first columns of x by B",
           [("load_stage(stage, full, update ? u : x,", "load_stage(stage, full, x,"),
            ("load_stage_multicast<kCluster>(stage, full, update ? u : x,",
             "load_stage_multicast<kCluster>(stage, full, x,")], **SMALL),
    Mutant("lora_hopper_no_scale", BOTH,
           "the update is not multiplied by s",
           [("scale * sum.x, scale * sum.y", "sum.x, sum.y")], **SMALL),
    Mutant("lora_hopper_lost_part", BOTH,
           "u is the sum of one block's steps alone",
           [("for (auto& part : memory.parts)", "auto& part = memory.parts[0];")],
           sizes=(160, 1024)),
    Mutant("lora_hopper_swapped_parts", BOTH,
           "the sums go to the wrong block of the cluster",
           [("&memory.complete, i / kShare)", "&memory.complete, kCluster - 1 - i / kShare)")],
           **SMALL),
    Mutant("lora_hopper_parts_too_early", BOTH,
           "the blocks' parts are added before they are there",
           [("hopper::mbarrier_wait(&memory.complete, 0);", "")], race=True, kind="fence",
           stops="has left the kernel", **SMALL),
    Mutant("lora_hopper_stale_u", BOTH,
           "u is computed by the first launch alone",
           [launch_once("kernel<<<blocks, threads(kTileM), bytes>>>")], timed=True, **SMALL),
    Mutant("lora_hopper_stale_out", BOTH,
           "only the first launch computes out",
           [launch_once("DEMO_CHECK(cudaLaunchKernelEx(&config")], timed=True, **SMALL),
    Mutant("lora_hopper_no_activation", ALL,
           "one column of two is left without its activation",
           [("sums[s] = Activation::of(sums[s] + bias.x);", "sums[s] = sums[s] + bias.x;")],
           runs=("40", "160 --activation gelu", "40 --activation sigmoid")),
    Mutant("lora_hopper_last_tile_left_out", BOTH,
           "the last tile of each block is not stored",
           [("        outgoing.store_all(panels, out);", "")], **SMALL),
    # Of each of the kinds, one in both.
    Mutant("lora_hopper_tail_twice", BOTH,
           "the last 16 of a stage's 64 k, one wgmma, are counted twice",
           [LAST_WGMMA_TWICE], sizes=(96, 1024), kind="tail"),
    Mutant("lora_hopper_step_before", BOTH,
           "each step multiplies the stage of the one before",
           [("(sums, ring.stages[at.stage], warpgroup, t > 0)",
             "(sums, ring.stages[t > 0 ? previous : at.stage], warpgroup, t > 0)")],
           sizes=(96, 1024), kind="stale"),
    Mutant("lora_hopper_registers_as_they_were", BOTH,
           "the sums begin as what their registers held",
           [SUMS_AS_THEY_WERE], sizes=(96, 1024), kind="accumulator"),
    Mutant("lora_hopper_no_full_wait", BOTH,
           "stages are multiplied before their copies have arrived",
           [WAITS_LATE], sizes=(96, 1024), race=True, kind="fence"),
    Mutant("lora_hopper_rows_rounded_down", ALL,
           "clusters walk whole tiles of rows alone",
           [(".rows = (M + kCluster * kTileM - 1) / (kCluster * kTileM)",
             ".rows = M / (kCluster * kTileM)")], sizes=(96, 1056), kind="grid"),
    Mutant("lora_hopper_short_grid", BOTH,
           "the last rows of u are not computed",
           [("blocks = (M + kTileM - 1) / kTileM * kCluster;",
             "blocks = M / kTileM * kCluster;")], sizes=(96, 1056), kind="grid"),
    Mutant("lora_hopper_first_biases", ALL,
           "every tile gets the first one's biases",
           [("(&b[own])", "(&b[own - col])")], sizes=(160, 1024), kind="bias"),
    Mutant("lora_recomputed_no_update", "recomputed",
           "u is not scaled, and so too large",
           [("scale * u_sums[2 * i], scale * u_sums[2 * i + 1]",
             "u_sums[2 * i], u_sums[2 * i + 1]")], **SMALL),
    Mutant("lora_recomputed_other_rows", "recomputed",
           "the second warpgroup's rows get the first one's u",
           [("hopper::wgmma_mma_async<half>(u_sums, rows, of_A",
             "hopper::wgmma_mma_async<half>(u_sums, hopper::matrix_descriptor(&stage.A[0][c]), "
             "of_A")], sizes=(288, 1024)),
    Mutant("lora_recomputed_swapped_ranks", "recomputed",
           "ranks 0 to 7 and 8 to 15 change places in u",
           [("(scale * u_sums[2 * i], scale * u_sums[2 * i + 1])",
             "(scale * u_sums[2 * (i ^ 2)], scale * u_sums[2 * (i ^ 2) + 1])")], **SMALL),
    Mutant("lora_recomputed_tail_twice", "recomputed",
           "the last 16 of a stage's 64 k are counted twice in u",
           [("hopper::wgmma_mma_async<half>(u_sums, rows, of_A, t > 0 || c > 0);",
             "hopper::wgmma_mma_async<half>(u_sums, rows, of_A, t > 0 || c > 0);\n"
             "if (c == 48) hopper::wgmma_mma_async<half>(u_sums, rows, of_A, true);")],
           sizes=(96, 1024), kind="tail"),
    Mutant("lora_recomputed_step_before", "recomputed",
           "each step multiplies A's rows of the stage before",
           [("<kRank>(memory.A[at.stage][c])",
             "<kRank>(memory.A[t > 0 ? previous : at.stage][c])")],
           sizes=(96, 1024), kind="stale"),
    Mutant("lora_recomputed_as_they_were", "recomputed",
           "the sums of u begin as what their registers held",
           [("float sums[kTileN / 2], u_sums[kRank / 2];",
             "float sums[kTileN / 2], u_sums[kRank / 2];\n"
             "        for (float& sum : u_sums) sum = 1;"),
            ("(u_sums, rows, of_A, t > 0 || c > 0)", "(u_sums, rows, of_A, true)")],
           sizes=(96, 1024), kind="accumulator"),
    Mutant("lora_recomputed_no_wait", "recomputed",
           "B is multiplied before its copy has arrived",
           [("        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);\n"
             "        hopper::wgmma_fence();\n        hopper::wgmma_mma_async<half>(sums, u,",
             "        hopper::wgmma_fence();\n        hopper::wgmma_mma_async<half>(sums, u,"),
            ("        for (int p = depth; p < kPanels; ++p)",
             "        hopper::wgmma_wait_group<0>();\n"
             "        hopper::mbarrier_wait(&ring.full[at.stage], at.parity);\n"
             "        for (int p = depth; p < kPanels; ++p)")],
           sizes=(), runs=("1024",), cpu_runs=("640 --rows 64",), race=True, kind="fence"),
    Mutant("lora_recomputed_stale_out", "recomputed",
           "only the first launch computes out",
           [launch_once("kernel<<<blocks, tiles.kThreads, bytes>>>")], timed=True, **SMALL),
]
NOT_APPLICABLE = {"zeroing": {
    kernel: "nothing is added up in global memory: no tile is divided"
    for kernel in ALL.split()}}

ANY_ORDER = ("160 --rows 130 --rank 40", "288 --rank 64")
FAST = {"project": (r"HGMMA\S*", r"UTMALDG\S*"),
        "appended_hopper": (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*"),
        "recomputed": (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*")}


def operations(M, N, r):
    return 2 * M * N * N + 4 * M * N * r


OPERATIONS = {"96": operations(96, 96, 16), "40 --rows 7 --rank 24": operations(7, 40, 24)}


def traffic(M, N, r):
    """By hand, in fp16: x once for u and once for x W, and u there and back. (The library: x W,
    x A, u B, and out is read once more.)"""
    least = M * N + N * N + N * r + r * N + N + M * N
    gemms = (2 * M * N + N * N) + (M * N + N * r + M * r) + (M * r + r * N + M * N)
    ours = (2, 2 * (least + M * N + 2 * M * r), 2 * M * r)
    return {"library_best": (3, 2 * (gemms + M * N + N), 2 * M * r),
            "appended_hopper": ours, "appended_early": ours, "recomputed": (1, 2 * least, 0)}


TRAFFIC = {"64": traffic(64, 64, 16), "40 --rows 20 --rank 8": traffic(20, 40, 8)}
RUNS = (*(f"{size} --activation {activation} --once"
          for size in ("1", "8 --rank 8", "40 --rank 64", "104 --rows 1", "264 --rows 5 --rank 40",
                       "136 --rows 130 --rank 24")
          for activation in ("relu", "gelu", "sigmoid", "none")),)
REFUSED = ("--rank 12", "--rank 0", "--rank 72", "--rows 0", "--activation tanh", "--cols 4", "0")
