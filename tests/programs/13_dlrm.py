"""What the tests of 13_dlrm need besides what it declares (see tests/pages.py)."""

from pages import COPY_16, Mutant, launch_once

SMALL = dict(sizes=(3,), runs=("33 --dot",), cpu_runs=("3", "33 --dot"))
OUTER = dict(sizes=(33,), cpu_sizes=(3,))
DOT = dict(sizes=(), runs=("33 --dot",), cpu_runs=("33 --dot",))

HEADERS = ("dlrm_chain.cuh",)

MUTANTS = [
    # Every way through the model looks rows up.
    Mutant("dlrm_id_off_by_one", "chain grouped fused_interaction",
           "the row is id mod rows",
           [("return (size_t(id) + 1) %", "return size_t(id) %")], **SMALL),
    Mutant("dlrm_swapped_table", "chain grouped fused_interaction",
           "the last two tables change places",
           [("m.tables + t * DlrmShape::kRows * E",
             "m.tables + (t < 24 ? t : 49 - t) * DlrmShape::kRows * E"),
            ("const size_t row = t * demo::DlrmShape::kRows",
             "const size_t row = (t < 24 ? t : 49 - t) * demo::DlrmShape::kRows"),
            ("row = v ? (v - 1) * demo::DlrmShape::kRows",
             "row = v ? (v < 25 ? v - 1 : 50 - v) * demo::DlrmShape::kRows")], **SMALL),
    Mutant("dlrm_first_ids", "chain grouped fused_interaction",
           "a sample takes an earlier one's ids",
           [("table[rows[n * kTables] * E", "table[rows[n / 2 * kTables] * E"),
            ("row_of(ids[e / E]);", "row_of(ids[n / 2 * kTables + t]);"),
            ("ids += size_t(blockIdx.x) * kTables", "ids += size_t(blockIdx.x) / 2 * kTables")],
           sizes=(3,), runs=("33 --dot",), cpu_runs=("3", "33 --dot"), kind="bias"),
    Mutant("dlrm_short_grid", "chain grouped fused_interaction",
           "the grids are rounded down, and what is left over has no block",
           [("cat<<<blocks(N * width / 4), ", "cat<<<N * width / 4 / kElementThreads, "),
            ("gather<<<blocks(N * kTables * E / 4), kElementThreads>>>(m.ids, m.tables, z.data(), "
             "N, E);\n        outer",
             "gather<<<N * kTables * E / 4 / kElementThreads, kElementThreads>>>(m.ids, m.tables, "
             "z.data(), N, E);\n        outer"),
            ("gather<<<blocks(N * kTables * E / 4), kElementThreads>>>(m.ids, m.tables, z.data(), "
             "N, E);\n        fused",
             "gather<<<N * kTables * E / 4 / kElementThreads, kElementThreads>>>(m.ids, m.tables, "
             "z.data(), N, E);\n        fused"),
            ("gather_dot<<<N, 128,", "gather_dot<<<N - 1, 128,")],
           sizes=(33,), runs=("33 --dot",), cpu_runs=("33", "33 --dot"), kind="grid"),
    Mutant("dlrm_outer_lost_features", "chain grouped",
           "the last block of a sample's features is not launched",
           [("width * width / 4 + kElementThreads - 1) / kElementThreads",
             "width * width / 4) / kElementThreads")],
           **OUTER),
    Mutant("dlrm_outer_swapped", "chain grouped",
           "a feature is of a neighboring column",
           [("four(&z[j]);\n    for", "four(&z[j < 4 ? j : j - 4]);\n    for")], **OUTER),
    Mutant("dlrm_stale_features", "chain grouped",
           "features are made the first time only",
           [launch_once("outer<<<outer_grid(N, width), kElementThreads>>>(z.data()"),
            launch_once("outer<<<outer_grid(N, width), kElementThreads>>>(z, f")], timed=True, **OUTER),
    Mutant("dlrm_swapped_pairs", "chain grouped",
           "the pairs' second vector is one further",
           [("return {i, p - i * (i - 1) / 2};", "return {i, p - i * (i - 1) / 2 + 1};")], **DOT),
    Mutant("dlrm_dot_tail_twice", "chain grouped",
           "the last numbers of the vectors are multiplied twice",
           [("for (size_t e = 0; e < E; e += 4)\n",
             "for (size_t i = 0, e = 0; i <= E; i += 4, e = min(i, E - 4))\n")],
           kind="tail", **DOT),
    Mutant("dlrm_dot_as_it_was", "chain grouped",
           "the dot products begin as what their register held",
           [("float sum = 0;\n    for (size_t e", "float sum = 1;\n    for (size_t e")],
           kind="accumulator", **DOT),
    Mutant("dlrm_dot_no_barrier", "grouped",
           "products are made of vectors that are not there yet",
           [("__syncthreads();  // the vectors are complete", "")], race=True, kind="fence", **DOT),
    Mutant("dlrm_dot_stale", "grouped",
           "the last table's row is loaded by the first block alone",
           [("four(&z[v * padded + e % E]) =",
             "if (v < 26 || blockIdx.x == 0) four(&z[v * padded + e % E]) =")], kind="stale",
           **DOT),
    Mutant("dlrm_one_feature", "fused_interaction",
           "the last number of z is not multiplied with itself and the others",
           [("factor = z[next]", "factor = next + 1 < width ? z[next] : half(0)")], **OUTER),
    Mutant("dlrm_fused_no_wait", "fused_interaction",
           "weights are read before their copies have arrived",
           [("__pipeline_wait_prior(kStages - 2);  // this", "// this"),
            ("copy_W(s + kStages - 1);", "copy_W(s);")], race=True, kind="fence",
           **OUTER),
    Mutant("dlrm_fused_no_barrier", "fused_interaction",
           "features are read before the others have made theirs",
           [("__syncthreads();                     // everyone's have", "// everyone's have")],
           race=True, kind="fence", **OUTER),
    Mutant("dlrm_fused_tail_twice", "fused_interaction",
           "the last step of each part is counted twice",
           [("for (unsigned int s = first; s < last; ++s) {",
             "for (unsigned int i = first, s = first; i <= last; ++i, s = min(i, last - 1)) {")],
           kind="tail", **OUTER),
    Mutant("dlrm_fused_stale", "fused_interaction",
           "the features are those of the step before",
           [("multiply(sums, &tiles.features[s % 2]",
             "multiply(sums, &tiles.features[s == first ? 0 : (s + 1) % 2]")], kind="stale",
           **OUTER),
    Mutant("dlrm_fused_as_they_were", "fused_interaction",
           "the sums begin as what their registers held",
           [("wmma::fill_fragment(sum, 0.0f)", "wmma::fill_fragment(sum, 1.0f)")],
           kind="accumulator", **OUTER),
    Mutant("dlrm_fused_lost_part", "fused_interaction",
           "the last part is not added",
           [("for (int p = 0; p < count; ++p)", "for (int p = 0; p < count - 1; ++p)")], **OUTER),
    Mutant("dlrm_fused_wrong_bias", "fused_interaction",
           "every column gets a neighbor's bias",
           [("b[my_index() % kHidden]", "b[(my_index() + 1) % kHidden]")], kind="bias", **OUTER),
    Mutant("dlrm_fused_no_relu", "fused_interaction",
           "what is negative stays so",
           [("= sum < 0 ? 0 : sum", "= sum")], **OUTER),
    Mutant("dlrm_fused_stale_output", "fused_interaction",
           "only the first launch computes",
           [launch_once("add_parts<<<")], timed=True, **OUTER),
]

NO_SHARED = "its kernels have no shared memory, and no barrier"
NOT_APPLICABLE = {
    "stale": {"chain": NO_SHARED},
    "fence": {"chain": NO_SHARED},
}
FAST = {"fused_interaction": ("HMMA", COPY_16)}


def gemm(N, K, M):  # x, W, b and out, in fp16
    return 2 * (N * K + K * M + M + N * M)


def traffic(N, E, wide):
    """By hand: launches, bytes moved, bytes kept; `wide` is the top MLP's first layer."""
    width, rows = 27 * E, 26 * N  # of z; looked up
    F = width * width
    mlps = sum(gemm(N, K, M) for K, M in ((13, 512), (512, 256), (256, 64), (64, E), (wide, 256),
                                          (256, 1))) + 2 * 2 * N
    relus = 2 * 2 * N * (512 + 256 + 64 + E + wide + 256)
    lookup = rows * (4 + 4 * E)
    outer = 2 * N * (width + F)
    kept = 2 * N * (512 + 256 + wide)
    blocks = -(-N // 128)
    parts = max(1, min(256 // (wide // 128 * blocks), -(-width // 48) * width // 60))
    pitch = 128 * blocks * wide
    fused = (2 * N * width + 2 * F * wide + 4 * parts * pitch  # z and W read, parts written
             + 4 * parts * N * wide + 2 * wide + 2 * N * wide)  # parts and bias read, hidden written
    return {"chain": (4 * 2 + 1 + 26 + 1 + 1 + 2 * 2 + 2,
                      mlps + relus + gemm(N, F, wide) + rows * 8 + lookup + 4 * N * width + outer,
                      kept + 4 * rows + 2 * (2 * N * width + N * F)),
            "grouped": (4 + 2 + 3 + 1, mlps + gemm(N, F, wide) + lookup + outer,
                        kept + 2 * N * (width + F)),
            "fused_interaction": (4 + 3 + 2 + 1, mlps + lookup + fused,
                                  kept + 2 * N * width + 4 * parts * pitch)}


def traffic_of_dot(N, E, wide):
    width, rows, F = 27 * E, 26 * N, E + 351
    pitch = -(-F // 8) * 8
    mlps = sum(gemm(N, K, M) for K, M in ((13, 512), (512, 256), (256, 64), (64, E), (wide, 256),
                                          (256, 1))) + 2 * 2 * N
    relus = 2 * 2 * N * (512 + 256 + 64 + E + wide + 256)
    kept = 2 * N * (512 + 256 + wide)
    products = 2 * N * (width + 729)
    return {"chain": (4 * 2 + 1 + 26 + 1 + 2 + 2 * 2 + 2,
                      mlps + relus + gemm(N, F, wide) + rows * (8 + 4 + 4 * E) + 4 * N * width
                      + products + 2 * 2 * N * F,
                      kept + 4 * rows + 2 * N * (2 * width + 729 + F)),
            # The sample's own vector is read where it is, and the products join it.
            "grouped": (4 + 1 + 3 + 1, mlps + gemm(N, pitch, wide) + rows * (4 + 2 * E)
                        + 2 * N * (E + pitch - E), kept + 2 * N * pitch)}


TRAFFIC = {"33 --embedding 4": {"cpu": traffic(33, 4, 256), "gpu": traffic(33, 4, 512)},
           "33 --embedding 4 --dot": {"cpu": traffic_of_dot(33, 4, 256),
                                      "gpu": traffic_of_dot(33, 4, 512)}}


def operations(N, E, F, wide, interaction):
    weights = 13 * 512 + 512 * 256 + 256 * 64 + 64 * E + F * wide + wide * 256 + 256
    return N * (2 * weights + interaction)


OPERATIONS = {
    "3 --embedding 8": {"cpu": operations(3, 8, 216 * 216, 256, 216 * 216),
                        "gpu": operations(3, 8, 216 * 216, 512, 216 * 216)},
    "3 --embedding 8 --dot": {"cpu": operations(3, 8, 8 + 351, 256, 2 * 351 * 8),
                              "gpu": operations(3, 8, 8 + 351, 512, 2 * 351 * 8)}}
RUNS = ("1 --embedding 8 --once", "5 --ids zipf --once", "129 --once",
        "100 --dot --embedding 20", "33 --dot --ids zipf --embedding 128 --once", "257 --dot --once")
REFUSED = ("--embedding 6", "--embedding 0", "--embedding 132", "--ids all", "--ids")
