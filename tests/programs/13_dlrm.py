"""What the tests of 13_dlrm need besides what it declares (see tests/pages.py)."""

from pages import Mutant, launch_once

IN_TF32 = dict(sizes=(), runs=("33 --dtype tf32",), cpu_runs=("3 --dtype tf32",))
DOT_IN_TF32 = dict(sizes=(), runs=("33 --dot --dtype tf32",), cpu_runs=("3 --dot --dtype tf32",))
SMALL = dict(sizes=(3,), runs=("33 --dot",), cpu_runs=("3", "33 --dot"))
OUTER = dict(sizes=(33,), cpu_sizes=(3,))
DOT = dict(sizes=(), runs=("33 --dot",), cpu_runs=("33 --dot",))

LARGEST = 33

MUTANTS = [
    # Every way through the model looks rows up.
    Mutant("dlrm_id_off_by_one", "chain grouped interaction_tile",
           "the row is id mod rows",
           [("return (size_t(id) + 1) %", "return size_t(id) %")], **SMALL),
    Mutant("dlrm_swapped_table", "chain grouped interaction_tile",
           "the last two tables change places",
           [("m.tables.data() + t * DlrmShape::kRows * E",
             "m.tables.data() + (t < 24 ? t : 49 - t) * DlrmShape::kRows * E"),
            ("const size_t row = t * demo::DlrmShape::kRows",
             "const size_t row = (t < 24 ? t : 49 - t) * demo::DlrmShape::kRows"),
            ("row = v ? (v - 1) * demo::DlrmShape::kRows",
             "row = v ? (v < 25 ? v - 1 : 50 - v) * demo::DlrmShape::kRows")], **SMALL),
    Mutant("dlrm_first_ids", "chain grouped interaction_tile",
           "a sample takes an earlier one's ids",
           [("table[rows[n * kTables] * E", "table[rows[n / 2 * kTables] * E"),
            ("row_of(ids[e / E]);", "row_of(ids[n / 2 * kTables + t]);"),
            ("ids += size_t(blockIdx.x) * kTables", "ids += size_t(blockIdx.x) / 2 * kTables")],
           sizes=(3,), runs=("33 --dot",), cpu_runs=("3", "33 --dot"), kind="bias"),
    Mutant("dlrm_short_grid", "chain grouped interaction_tile",
           "the grids are rounded down, and what is left over has no block",
           [("cat<<<blocks(N * width / 4), ", "cat<<<N * width / 4 / kElementThreads, "),
            ("gather<T><<<blocks(N * kTables * E / 4), ",
             "gather<T><<<N * kTables * E / 4 / kElementThreads, "),
            ("gather<half><<<blocks(N * kTables * E / 4), ",
             "gather<half><<<N * kTables * E / 4 / kElementThreads, "),
            ("gather_dot<T><<<N, 128,", "gather_dot<T><<<N - 1, 128,")],
           sizes=(33,), runs=("33 --dot",), cpu_runs=("33", "33 --dot"), kind="grid"),
    Mutant("dlrm_outer_lost_features", "chain grouped",
           "the last block of a sample's features is not launched",
           [("width * width / 4 + kElementThreads - 1) / kElementThreads",
             "width * width / 4) / kElementThreads")],
           **OUTER),
    Mutant("dlrm_outer_swapped", "chain grouped",
           "a feature is of a neighboring column",
           [("four(&z[j]);\n    for", "four(&z[j < 4 ? j : j - 4]);\n    for")], **OUTER),
    Mutant("dlrm_outer_swapped_tf32", "chain grouped",
           "of every four features the first is that of the second column",
           [("for (T& v : product.at) v = z[i] * v;",
             "product.at[0] = product.at[1];\n    for (T& v : product.at) v = z[i] * v;")],
           **IN_TF32),
    Mutant("dlrm_dot_lost_number_tf32", "chain grouped",
           "the last number of a vector is left out",
           [("for (int c = 0; c < 4; ++c) sum +=", "for (int c = 0; c < 4 - (e + 4 == E); ++c) sum +=")],
           **DOT_IN_TF32),
    Mutant("dlrm_stale_features", "chain grouped",
           "features are made the first time only",
           [launch_once("outer<T><<<outer_grid(N, width), kElementThreads>>>(z, f"),
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
    Mutant("dlrm_one_feature", "interaction_tile",
           "the last number of z is not multiplied with itself and the others",
           [("width * (part + 1) / parts)) {", "(width - 1) * (part + 1) / parts)) {")], **OUTER),
    Mutant("dlrm_fused_tail_twice", "interaction_tile",
           "of each i the last tile is counted twice",
           [("for (int j : ct::irange(0, tile::count(width, 64))) {",
             "for (int t : ct::irange(0, tile::count(width, 64) + 1)) {\n"
             "            const int j = t < tile::count(width, 64) ? t : t - 1;")],
           kind="tail", **OUTER),
    Mutant("dlrm_fused_as_they_were", "interaction_tile",
           "the sums begin as what their registers held",
           [("ct::zeros<ct::tile<float, ct::shape<kTileRows, kTileCols>>>()",
             "ct::full<ct::tile<float, ct::shape<kTileRows, kTileCols>>>(1.0f)")],
           kind="accumulator", **OUTER),
    Mutant("dlrm_fused_lost_part", "interaction_tile",
           "the last part is not added",
           [("for (int p = 0; p < count; ++p)", "for (int p = 0; p < count - 1; ++p)")], **OUTER),
    Mutant("dlrm_fused_wrong_bias", "interaction_tile",
           "every column gets a neighbor's bias",
           [("b[my_index() % kHidden]", "b[(my_index() + 1) % kHidden]")], kind="bias", **OUTER),
    Mutant("dlrm_fused_no_relu", "interaction_tile",
           "what is negative stays so",
           [("= sum < 0 ? 0 : sum", "= sum")], **OUTER),
    Mutant("dlrm_fused_stale_output", "interaction_tile",
           "only the first launch computes",
           [launch_once("add_partials<<<")], timed=True, **OUTER),
    Mutant("dlrm_tile_stale_turned", "interaction_tile",
           "z is turned by the first launch alone",
           [launch_once("demo::turn<<<")], timed=True, **OUTER),
]

NO_SHARED = "its kernels have no shared memory, and no barrier"
NOT_APPLICABLE = {
    "stale": {"chain": NO_SHARED},
    "fence": {"chain": NO_SHARED},
}
FAST = {"interaction_tile": ("HGMMA",)}


def gemm(N, K, M, size):  # x, W, b and out, in numbers of `size` bytes
    return size * (N * K + K * M + M + N * M)


def mlps_of(N, E, wide, size):
    """Without the layer that reads the features; with the sigmoid. And what ReLUs in place move."""
    mlps = sum(gemm(N, K, M, size) for K, M in ((13, 512), (512, 256), (256, 64), (64, E),
                                                (wide, 256), (256, 1)))
    return mlps + 2 * size * N, 2 * size * N * (512 + 256 + 64 + E + wide + 256)


def traffic(N, E, size, wide):
    """By hand: launches, bytes moved, bytes kept; `wide` is the top MLP's first layer."""
    width, looked_up = 27 * E, 26 * N
    F = width * width
    mlps, relus = mlps_of(N, E, wide, size)
    lookup = looked_up * (4 + 2 * size * E)
    outer = size * N * (width + F)
    kept = size * N * (512 + 256 + wide)
    rows = -(-N // 128)  # of blocks
    pitch = 128 * rows * wide

    found = {"chain": (4 * 2 + 1 + 26 + 1 + 1 + 2 * 2 + 2,
                       mlps + relus + gemm(N, F, wide, size) + looked_up * 8 + lookup
                       + 2 * size * N * width + outer,
                       kept + 4 * looked_up + size * (2 * N * width + N * F)),
             "grouped": (4 + 2 + 3 + 1, mlps + gemm(N, F, wide, size) + lookup + outer,
                         kept + size * N * (width + F))}
    if size == 2:
        # z is read for lookups, turned, which is read, too; parts are written and added up
        parts = max(1, min((8 if wide == 256 else 128) // (wide // 256 * rows), width // 4))
        z = 2 * N * width
        moved = lookup + 4 * z + 2 * F * wide + 2 * wide + 2 * N * wide + 4 * parts * (
            pitch + N * wide)
        found["interaction_tile"] = (4 + 4 + 2 + 1, mlps + moved,
                                     kept + z + 2 * width * 128 * rows + 4 * parts * pitch)
    return found


def traffic_of_dot(N, E, size, wide):
    width, rows, F = 27 * E, 26 * N, E + 351
    pitch = -(-F // 8) * 8
    mlps, relus = mlps_of(N, E, wide, size)
    kept = size * N * (512 + 256 + wide)
    products = size * N * (width + 729)
    return {"chain": (4 * 2 + 1 + 26 + 1 + 2 + 2 * 2 + 2,
                      mlps + relus + gemm(N, F, wide, size) + rows * (8 + 4 + 2 * size * E)
                      + 2 * size * N * width + products + 2 * size * N * F,
                      kept + 4 * rows + size * N * (2 * width + 729 + F)),
            # The sample's own vector is read where it is, and the products join it.
            "grouped": (4 + 1 + 3 + 1, mlps + gemm(N, pitch, wide, size) + rows * (4 + size * E)
                        + size * N * (E + pitch - E), kept + size * N * pitch)}


WIDE = {"cpu": 256, "gpu": 512}


def on_each(formula, *arguments):
    return {backend: formula(*arguments, wide) for backend, wide in WIDE.items()}


TRAFFIC = {"33 --embedding 4": on_each(traffic, 33, 4, 2),
           "33 --embedding 4 --dot": on_each(traffic_of_dot, 33, 4, 2),
           "3 --embedding 4 --dtype tf32": on_each(traffic, 3, 4, 4),
           "3 --embedding 4 --dot --dtype tf32": on_each(traffic_of_dot, 3, 4, 4)}


def operations(N, E, F, interaction, wide):
    weights = 13 * 512 + 512 * 256 + 256 * 64 + 64 * E + F * wide + wide * 256 + 256
    return N * (2 * weights + interaction)


OPERATIONS = {"3 --embedding 8": on_each(operations, 3, 8, 216 * 216, 216 * 216),
              "3 --embedding 8 --dot": on_each(operations, 3, 8, 8 + 351, 2 * 351 * 8)}
RUNS = ("1 --embedding 8 --once", "5 --ids zipf --once", "129 --once",
        "100 --dot --embedding 20", "33 --dot --ids zipf --embedding 128 --once", "257 --dot --once",
        "5 --embedding 8 --dtype tf32 --once", "33 --dot --embedding 20 --dtype tf32 --once")
REFUSED = ("--embedding 6", "--embedding 0", "--embedding 132", "--ids all", "--ids")
