"""What the tests of bonus_lora need besides what it declares (see tests/pages.py)."""

from pages import LAST_WGMMA_TWICE, SUMS_AS_THEY_WERE, WAITS_LATE, Mutant, launch_once

BOTH = "appended_hopper appended_early"  # which share their kernels
ALL = BOTH + " recomputed"
SMALL = dict(sizes=(160, 1024), cpu_sizes=(40, 160))


def tiles(rows, columns, stages):
    """An edit that leaves these tiles alone, of any size: the others need not be compiled."""
    return ("""    const size_t large = time(128, 256), medium = time(128, 192), small = time(64, 128);
    if (large <= medium && large <= small) return prepare(Tiles<128, 256, 4>());
    if (medium <= small) return prepare(Tiles<128, 192, 4>());
    return prepare(Tiles<64, 128, 8>());
""", f"    (void)time;\n    return prepare(Tiles<{rows}, {columns}, {stages}>());\n")


ONE_PROJECT = ("""    if (low >= enough) return prepare_project<128, 7, 2>(g, u);
    if (2 * low >= enough) return prepare_project<64, 10, 2>(g, u);
""", "    (void)low, (void)enough;\n")


def mutant(name, kernels, reason, edits, tiles=tiles(64, 128, 8), **others):
    """A bug of this program, tried with one size of tiles."""
    return Mutant(name, kernels, reason, [*edits, tiles, ONE_PROJECT], **others)


OWN = "kernel<<<blocks, threads(kTileM), bytes>>>"
UPDATE_WAIT = "hopper::mbarrier_wait(&ring.full[at.stage], at.parity);"

MUTANTS = [
    mutant("lora_hopper_first_ranks", BOTH,
           "the last step ends after 16 of the update's r products",
           [("for (int k = 0; k < r; k += 16) {", "for (int k = 0; k < min(r, 16); k += 16) {")],
           sizes=(), runs=("160 --rank 24", "1024 --rank 64"),
           cpu_runs=("40 --rank 24", "160 --rank 64"), kind="tail"),
    mutant("lora_hopper_update_from_x", BOTH,
           "the last step multiplies the first columns of x by B",
           [("load_stage(stage, full, update ? u : x,", "load_stage(stage, full, x,"),
            ("load_stage_multicast<kCluster>(stage, full, update ? u : x,",
             "load_stage_multicast<kCluster>(stage, full, x,")], **SMALL),
    mutant("lora_hopper_no_scale", BOTH,
           "the update is not multiplied by s",
           [("scale * sum.x, scale * sum.y", "sum.x, sum.y")], **SMALL),
    mutant("lora_hopper_lost_part", BOTH,
           "u is the sum of one block's steps alone",
           [("for (auto& partial : memory.partials)", "auto& partial = memory.partials[0];")],
           sizes=(160, 1024)),
    mutant("lora_hopper_swapped_parts", BOTH,
           "the sums go to the wrong block of the cluster",
           [("&memory.complete, i / kShare)", "&memory.complete, kCluster - 1 - i / kShare)")],
           **SMALL),
    mutant("lora_hopper_parts_too_early", BOTH,
           "the blocks' parts are added before they are there",
           [("hopper::mbarrier_wait(&memory.complete, 0);", "")], race=True, kind="fence",
           stops="has left the kernel", **SMALL),
    mutant("lora_hopper_stale_u", BOTH,
           "u is computed by the first launch alone",
           [launch_once(OWN + "(map_x, map_A")], timed=True, **SMALL),
    mutant("lora_hopper_stale_out", BOTH,
           "only the first launch computes out",
           [launch_once("DEMO_CHECK(cudaLaunchKernelEx(&config")], timed=True, **SMALL),
    mutant("lora_hopper_no_activation", ALL,
           "one column of two is left without its activation",
           [("sums[s] = Activation::of(sums[s] + bias.x);", "sums[s] = sums[s] + bias.x;")],
           runs=("40", "160 --activation gelu", "40 --activation sigmoid")),
    mutant("lora_hopper_last_tile_left_out", BOTH,
           "the last tile of each block is not stored",
           [("        outgoing.store_all(panels, out);\n    }\n}", "    }\n}")], stops="nobody waited for it", **SMALL),
    # Tiles of 192 columns: three panels, two places.
    mutant("lora_hopper_panels_in_flight", ALL,
           "a panel is overwritten while TMA still reads it",
           [("wait_group_read<kOutPanels - 1>", "wait_group_read<kOutPanels>")],
           tiles=tiles(128, 192, 4), sizes=(), cpu_runs=("384 --rows 600",), race=True),
    # Of each of the kinds, one in both.
    mutant("lora_hopper_tail_twice", ALL,
           "the last 16 of a stage's 64 k, one wgmma, are counted twice",
           [LAST_WGMMA_TWICE], sizes=(96, 1024), kind="tail"),
    mutant("lora_hopper_step_before", ALL,
           "each step multiplies the stage of the one before",
           [("multiply(at.stage, t);", "multiply(t > 0 ? previous : at.stage, t);")],
           sizes=(96, 1024), kind="stale"),
    mutant("lora_hopper_registers_as_they_were", ALL,
           "the sums begin as what their registers held",
           [SUMS_AS_THEY_WERE], sizes=(96, 1024), kind="accumulator"),
    mutant("lora_hopper_no_full_wait", BOTH,
           "the thin product multiplies stages before their copies have arrived",
           [WAITS_LATE], sizes=(96, 1024), race=True, kind="fence"),
    mutant("lora_hopper_no_wait", ALL,
           "stages are multiplied before their copies have arrived",
           [(UPDATE_WAIT + "\n        multiply(at.stage, t);",
             "multiply(at.stage, t);\n        hopper::wgmma_wait_group<0>();\n        "
             + UPDATE_WAIT)], sizes=(96, 1024), race=True, kind="fence"),
    mutant("lora_hopper_rows_rounded_down", BOTH,
           "clusters walk whole tiles of rows alone",
           [(".rows = (M + kCluster * kTileM - 1) / (kCluster * kTileM)",
             ".rows = M / (kCluster * kTileM)")], sizes=(96, 1056), kind="grid"),
    mutant("lora_hopper_short_grid", BOTH,
           "the last rows of u are not computed",
           [("blocks = (M + kTileM - 1) / kTileM * kCluster;",
             "blocks = M / kTileM * kCluster;")], sizes=(96, 1056), kind="grid"),
    mutant("lora_hopper_first_biases", ALL,
           "every tile gets the first one's biases",
           [("(&b[own])", "(&b[own - col])")], sizes=(160, 1024), kind="bias"),
    mutant("lora_recomputed_no_update", "recomputed",
           "u is not scaled, and so too large",
           [("scale * u_sums[2 * i], scale * u_sums[2 * i + 1]",
             "u_sums[2 * i], u_sums[2 * i + 1]")], **SMALL),
    mutant("lora_recomputed_other_rows", "recomputed",
           "the second warpgroup's rows get the first one's u",
           [("memory.tiles.ring.stages[s].A[64 * warpgroup]", "memory.tiles.ring.stages[s].A[0]")],
           tiles=tiles(128, 256, 4), sizes=(288, 1024)),
    mutant("lora_recomputed_swapped_ranks", "recomputed",
           "ranks 0 to 7 and 8 to 15 change places in u",
           [("(scale * u_sums[2 * i], scale * u_sums[2 * i + 1])",
             "(scale * u_sums[2 * (i ^ 2)], scale * u_sums[2 * (i ^ 2) + 1])")], **SMALL),
    mutant("lora_recomputed_lost_half", "recomputed",
           "u is a block's own half of the sums alone",
           [("const float4 v = theirs(from.stage, i);", "const float4 v{};")], **SMALL),
    mutant("lora_recomputed_same_half", "recomputed",
           "both blocks add up the first half of each step, so that it counts twice",
           [("&rows[rank * kShareK + c]", "&rows[c]"),
            ("A, k + rank * kShareK, 0, full", "A, k, 0, full")], **SMALL),
    mutant("lora_recomputed_wrong_half", "recomputed",
           "the second block multiplies its rows of A by the first half's columns of x",
           [("&rows[rank * kShareK + c]", "&rows[c]")], sizes=(160, 1024)),
    mutant("lora_recomputed_exchange_too_early", "recomputed",
           "the other block's sums are added before they are there",
           [("if (i % kEach == 0) hopper::mbarrier_wait(&ring.full[from.stage], from.parity);", "")],
           race=True, kind="fence", **SMALL),
    mutant("lora_recomputed_exchange_into_x", "recomputed",
           "the sums are sent to where a slower warp may still read x",
           [("hopper::mbarrier_wait(&ring.empty[to.stage], to.parity ^ 1);", "{}")],
           race=True, kind="fence", sizes=(160, 1024), cpu_sizes=(40, 640)),
    mutant("lora_recomputed_kept_too_long", "recomputed",
           "a block computes u for its first tile alone",
           [(".new_rows = row != row_before", ".new_rows = row_before < 0")],
           sizes=(), runs=("40 --rows 40000",), cpu_runs=("40 --rows 4099",), kind="stale"),
    mutant("lora_recomputed_rows_rounded_down", "recomputed",
           "clusters walk whole tiles of rows alone",
           [("rows = (M + kTileM - 1) / kTileM;", "rows = M / kTileM;")],
           sizes=(96, 1056), kind="grid"),
    mutant("lora_recomputed_tail_twice", "recomputed",
           "the last 16 of a block's 32 k are counted twice in u",
           [("hopper::wgmma_mma_async<half>(u_sums,",
             "for (int twice = 0; twice <= c / 16; ++twice) hopper::wgmma_mma_async<half>(u_sums,")],
           sizes=(96, 1024), kind="tail"),
    mutant("lora_recomputed_step_before", "recomputed",
           "each step multiplies A's rows of the stage before",
           [("(memory.A[s][c])", "(memory.A[s > 0 ? s - 1 : 0][c])")],
           sizes=(96, 1024), kind="stale"),
    mutant("lora_recomputed_as_they_were", "recomputed",
           "the sums of u begin as what their registers held",
           [("float u_sums[kRank / 2] = {};",
             "float u_sums[kRank / 2];\n            for (float& sum : u_sums) sum = 1;")],
           sizes=(96, 1024), kind="accumulator"),
    mutant("lora_recomputed_no_wait", "recomputed",
           "B is multiplied before its copy has arrived",
           [(UPDATE_WAIT + "\n            const auto& of_B", "const auto& of_B"),
            ("            hopper::wgmma_wait_group<1>();\n            release(previous);\n"
             "            previous = at",
             "            hopper::wgmma_wait_group<0>();\n            " + UPDATE_WAIT
             + "\n            release(previous);\n            previous = at")],
           sizes=(), cpu_runs=("640 --rows 64",), race=True, kind="fence"),
    mutant("lora_recomputed_first_ranks", "recomputed",
           "the second update has the first one's 32 columns of u",
           [("u[(q + k) / 16]", "u[k / 16]")],
           sizes=(), runs=("160 --rank 64", "1024 --rank 40"), cpu_runs=("40 --rank 40",)),
    mutant("lora_recomputed_stale_out", "recomputed",
           "only the first launch computes out",
           [launch_once(OWN + "(x, W")], timed=True, **SMALL),
]
NOT_APPLICABLE = {"zeroing": {
    kernel: "nothing is added up in global memory: no tile is divided"
    for kernel in ALL.split()}}

# Also odd numbers of columns of tiles, whose last pair has a block outside, and blocks that keep u.
ANY_ORDER = ("160 --rows 130 --rank 40", "288 --rank 64", "264 --rows 300 --rank 8",
             "776 --rows 100")
FAST = {"project": (r"HGMMA\S*", r"UTMALDG\S*"),
        "appended_hopper": (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*"),
        "recomputed": (r"HGMMA\S*", r"UTMALDG\S*", r"UTMASTG\S*")}


def operations(M, N, r):
    return 2 * M * N * N + 4 * M * N * r


OPERATIONS = {"96": operations(96, 96, 16), "40 --rows 7 --rank 24": operations(7, 40, 24)}


def traffic(M, N, r):
    """By hand, in fp16: x once for u and once for x W, and u there and back. (The library: x W,
    x A, u B, and out is read once more.) How often recomputed's blocks copy the same, which caches
    serve, DEMO_COUNT=1 says: x once for each pair of columns of tiles, since each of the two blocks
    copies half for both; W, and where u is computed A, once for each row of tiles."""
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
