"""Every tuned constant of lowering: its value, its unit, what it means, and how it was found.

The loop nests and cost models take their numbers from here by name, those of grids from
`grid_tuning.py`, those of tiles from `tile_tuning.py`, those of recurrences from
`recurrence_tuning.py`, those of transformed convolutions from `winograd_tuning.py`, those of
sliding windows from `sliding_tuning.py`. What differs from processor to processor is no constant:
it is a field of `machines.processors.Processor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class TunedConstant:
    """One row of the table."""

    name: str
    value: float
    unit: str
    meaning: str
    evidence: str  # how it was measured, or that it was chosen


TABLE: dict[str, TunedConstant] = {}

CHOSEN = "chosen, not measured"
_ZEN4 = "measured on Zen 4: products of 64 to 2048, one thread"
_ZEN3 = "measured on Zen 3: products of 64 to 1024, one thread"


def row(name: str, value: Number, unit: str, meaning: str, evidence: str) -> Number:
    """Adds a row to the table and returns its value."""
    TABLE[name] = TunedConstant(name, value, unit, meaning, evidence)
    return value


# -- matrix products on a processor ----------------------------------------------------------------

TILE_ROWS_MAX = row(
    "TILE_ROWS_MAX", 16, "rows", "the most rows of a register tile",
    "14 rows of 2 vectors is the best tile of 32 registers on Zen 4; 16 rows spill")
TILE_VECTORS_MAX = row(
    "TILE_VECTORS_MAX", 16, "vectors", "the most vectors of columns of a register tile",
    "one row of 16 vectors is the best tile of one row on Zen 4")
SPARE_REGISTERS = row(
    "SPARE_REGISTERS", 1, "vector registers",
    "that a tile leaves free: with none left, LLVM keeps some of its sums in memory",
    "on Zen 3, 4 rows of 3 vectors (all 16 registers) reach 45 GFLOP/s, 6 rows of 2 reach 97")
L1_SHARE = row(
    "L1_SHARE", 0.5, "share of the cache",
    "how much of the first cache a panel of the right operand may fill", CHOSEN)
L2_SHARE = row(
    "L2_SHARE", 0.5, "share of the cache",
    "how much of the second cache the rows of the left operand may fill", _ZEN4)
BLOCK_TILES = row(
    "BLOCK_TILES", 8, "tiles", "of rows up to which a panel of a right operand that the second "
    "cache would hold is read once for several: where it comes from afar, they share the wait",
    "on Sapphire Rapids, 49 x 160 x 1280 within MNASNet: 179 us become 127")
BLOCK_TURNS = row(
    "BLOCK_TURNS", 8, "turns", "that are left for workers to share at least, if so", CHOSEN)
PREFETCH_STEPS = row(
    "PREFETCH_STEPS", 8, "steps along k",
    "how far ahead rows of the right operand are fetched that are not in the first cache", _ZEN4)
K_UNROLL = row(
    "K_UNROLL", 4, "steps along k",
    "steps in one turn of the loop: fewer additions of counters beside the multiply-adds", _ZEN4)
PREFETCH_MAX = row(
    "PREFETCH_MAX", 64, "steps along k", "the most that a schedule may fetch ahead", CHOSEN)
UNROLL_MAX = row(
    "UNROLL_MAX", 16, "steps along k", "the most that a schedule may unroll",
    "chosen by the size of the code")
INLINE_EPILOGUE_MEMBERS = row(
    "INLINE_EPILOGUE_MEMBERS", 5, "values",
    "the longest epilogue that is repeated for each row of a tile; others are a loop over a local "
    "array", "chosen by the size of the code")
INLINE_EPILOGUE_DEPTH = row(
    "INLINE_EPILOGUE_DEPTH", 256, "steps along k",
    "from this depth on every epilogue is a loop: its time is lost in that of the product", CHOSEN)

READINGS_KEPT = row(
    "READINGS_KEPT", 1024, "views", "whose way to read them a product remembers: finding it takes "
    "milliseconds", CHOSEN)

# -- preparing operands ----------------------------------------------------------------------------

PAGE_BYTES = row(
    "PAGE_BYTES", 4096, "bytes", "rows of the left operand that lie a multiple of this apart evict "
    "one another from the first cache", "on Zen 4 a product of 1024 falls from 107 to 80 GFLOP/s")
ROW_PADDING_BYTES = row(
    "ROW_PADDING_BYTES", 64, "bytes", "added to such rows in a copy: one line of the cache", _ZEN4)
PACK_ROWS = row(
    "PACK_ROWS", 512, "rows", "from which on a right operand larger than the second cache is "
    "packed", _ZEN4)
PACK_ROWS_MIN = row(
    "PACK_ROWS_MIN", 12, "rows", "from which on a right operand whose rows push one another out of "
    "the second cache is packed: two tiles of rows", _ZEN3)
PACK_OVERFLOW = row(
    "PACK_OVERFLOW", 96, "rows", "times how often such a panel overflows the cache, from which on "
    "it is packed, where vectors are a line; wider ones wait less often", "on Zen 3 packing wins "
    "for 32 rows of 512 x 512 and 16 of 1024 x 1024, and loses for 16 of 512 x 512; on Zen 5 with "
    "784 x 512 it wins from 64 rows on at AVX2, and is level from 128 on at AVX-512")
PACK_ROWS_PAGES = row(
    "PACK_ROWS_PAGES", 24, "rows", "from which on a right operand whose rows lie whole pages apart "
    "is packed", "on Zen 3, 24 x 64 x 1024: 53 GFLOP/s become 66; 1024 x 64 x 1024: 58 become 93")
PACK_DEPTH_PAGES = row(
    "PACK_DEPTH_PAGES", 32, "steps along k", "of such a product at least",
    "on Zen 3, 100 x 32 x 1024: 53 GFLOP/s become 71")
LINE_BYTES = row(
    "LINE_BYTES", 64, "bytes", "of a line of every cache", "public figure")
NARROW_ROWS = row(
    "NARROW_ROWS", 2, "rows", "up to which a product waits for its weights, and reads them in 16 "
    "bits where mixed precision allows it", CHOSEN)
WINDOW_ROWS = row(
    "WINDOW_ROWS", 6, "rows", "of a tile from which on windows of an image are read where they lie",
    CHOSEN)
PLANES_MAX = row(
    "PLANES_MAX", 4, "channels", "of an image up to which a product reads it as planes, where "
    "they lie", "on Zen 5 a border around 3 of 224 x 224 takes 10 us, 110 where they are turned")
COPY_COLUMNS = row(
    "COPY_COLUMNS", 64, "columns", "of a product from which on a copy of its left operand pays, "
    "where rows lie apart in a way that tiles read badly",
    "on Zen 3, 128 x 2048 x 512 with the left operand transposed: 54 GFLOP/s become 88")
COPY_GAIN = row(
    "COPY_GAIN", 0.95, "ratio", "of the estimated time of a product of copied windows to that of "
    "windows where they lie, below which they are copied", "Zen 5, AVX2: 7 x 7 x 512 2.5 to 2.0 ms")
PRODUCT_DEPTH = row(
    "PRODUCT_DEPTH", 2048, "steps along k", "of each part of a deep product, which caches hold",
    "on Zen 3, 256 x 16384 x 768: 50 GFLOP/s become 87; 576 x 12544 x 64: 61 become 72")
DEEP_PRODUCT_SIZE = row(
    "DEEP_PRODUCT_SIZE", 64, "rows and columns", "of a product at least that is cut along k",
    CHOSEN)
SPLIT_DEPTH = row(
    "SPLIT_DEPTH", 256, "steps along k", "of each part at least, where a product on a grid is cut "
    "along k", CHOSEN)
SPLIT_TILE = row(
    "SPLIT_TILE", 64, "rows and columns", "of the tiles that are counted to see whether a grid has "
    "enough of them without cutting k", CHOSEN)
LONG_REDUCTION = row(
    "LONG_REDUCTION", 1 << 15, "elements for each result",
    "from which on a reduction is done in two steps, so that workers can share the first", CHOSEN)
LONG_REDUCTION_RESULTS = row(
    "LONG_REDUCTION_RESULTS", 64, "results", "up to which a reduction is done in two steps",
    CHOSEN)
LONG_REDUCTION_PARTS = row(
    "LONG_REDUCTION_PARTS", 64, "parts", "the most parts of the first step", CHOSEN)

# -- wide values, such as the scores of attention --------------------------------------------------

WIDE_RATIO = row(
    "WIDE_RATIO", 4.0, "ratio", "of the columns of a product to its steps along k, from which on "
    "its result may be computed in blocks of rows", CHOSEN)
WIDE_BYTES = row(
    "WIDE_BYTES", 1 << 18, "bytes", "of one matrix of wide values from which on it is computed in "
    "blocks of rows", "on Zen 3, attention of 12 heads of 64: blocks take 1.07 of the time at 128 "
    "positions, 0.98 at 256, 0.87 at 512, 0.6 at 1024; training likewise; causal less than that")
WIDE_STEPS = row(
    "WIDE_STEPS", 256, "steps along k", "of such a product at most: each block reads its right "
    "operand again", "chosen: the widest head of attention in use")
BLOCK_SHARE = row(
    "BLOCK_SHARE", 0.5, "share of the cache", "how much of the second cache a block of a wide "
    "value may fill", "on Zen 3, 8 x 1024 x 64: blocks of 32, 64 and 128 rows take 29.3, 29.8 and "
    "31.4 ms")
BLOCK_ROWS_MIN = row(
    "BLOCK_ROWS_MIN", 32, "rows", "of a block at least: with fewer, products wait for their right "
    "operand", "on Zen 3, 4096 positions, causal, with gradients: 16, 32 and 64 rows take 293, 255 "
    "and 234 ms; 16,384 forward: 1.08, 1.25 and 1.39 s")
BLOCK_ROWS_MAX = row(
    "BLOCK_ROWS_MAX", 64, "rows", "of a block at most",
    "on Zen 3, 128 rows are slower than 64 at 1024 positions")
BLOCK_SEGMENTS = row(
    "BLOCK_SEGMENTS", 4, "segments", "of rows that may see different numbers of columns: with "
    "four, causal attention takes 5/8 of the work of all columns; twice as many at most, where "
    "nothing is summed over rows",
    "on Zen 5, 1024 positions: eight take 0.94 of the time and twice as long to compile")
SEGMENT_BLOCKS = row(
    "SEGMENT_BLOCKS", 16, "blocks", "of a segment at least, where there are more segments than "
    "that", "on Zen 5, 4096 positions: eight segments take 0.92 of the time of four")
GRID_WIDE_BYTES = row(
    "GRID_WIDE_BYTES", 1 << 33, "bytes", "of all wide values of one shape, from which on a grid "
    "computes them in blocks of rows: what would not fit its memory", CHOSEN)
GRID_BLOCK_BYTES = row(
    "GRID_BLOCK_BYTES", 1 << 28, "bytes", "of such a block on a grid", CHOSEN)

# -- elementwise and reducing loops on a processor -------------------------------------------------

SHARED_TURN_ELEMENTS = row(
    "SHARED_TURN_ELEMENTS", 1024, "elements",
    "of one turn of a loop that workers share: longer turns take one more axis into that loop",
    CHOSEN)
SHARED_TURNS = row(
    "SHARED_TURNS", 64, "turns", "that are left for workers to share at least", CHOSEN)
COLUMN_VECTORS = row(
    "COLUMN_VECTORS", 4, "vectors", "of columns that are reduced side by side in one loop",
    "chosen: four sums cover the latency of an addition")
COLUMN_TURNS = row(
    "COLUMN_TURNS", 4, "turns", "that are left for workers to share at least, where there are no "
    "rows to share", CHOSEN)
COLUMN_MEMBERS = row(
    "COLUMN_MEMBERS", 32, "values for each reduction",
    "the most of a region whose columns are reduced side by side", "chosen by the size of the code")
ROW_SUMS = row(
    "ROW_SUMS", 4, "vectors", "that are added up side by side along a row",
    "chosen: four sums cover the latency of an addition")
ROW_SUM_VECTORS = row(
    "ROW_SUM_VECTORS", 8, "vectors", "of a row from which on it has several sums", CHOSEN)
SIDE_BY_SIDE_MAX = row(
    "SIDE_BY_SIDE_MAX", 8, "vectors", "the most that a schedule may compute side by side",
    "chosen by the size of the code")
RECOMPUTE_SLOTS = row(
    "RECOMPUTE_SLOTS", 8, "issue slots",
    "above which a value that a later pass needs is stored and not computed again", CHOSEN)
SCATTER_BYTES_MAX = row(
    "SCATTER_BYTES_MAX", 256, "bytes", "the longest run of neighbours for which a copy keeps to "
    "the order of what it reads, not of what it writes", "on Zen 3 packing 1024 x 1024 in panels "
    "of 64 bytes takes a third of the time so")
SCATTER_STRIDE_BYTES = row(
    "SCATTER_STRIDE_BYTES", 1024, "bytes", "from one such run to the next, from which on it does",
    CHOSEN)
SCATTER_RUNS = row(
    "SCATTER_RUNS", 4, "runs", "written side by side at most, where they lie whole pages apart",
    "on Zen 5 packing 1024 x 1024 in panels of 128 and 64 bytes takes 0.59 and 0.39 of the time, "
    "64 x 4096 0.32 and 0.27; 2 and 8 runs as much, 16 more")
PART_GAIN = row(
    "PART_GAIN", 0.75, "ratio", "of readings, divisions and tests with loops for the parts of "
    "joined values and borders to those of loops that ask for each element, below which there are "
    "such", "on Sapphire Rapids a border around 224 x 224 x 3 takes 18 us in place of 83")
PART_VALUES = row(
    "PART_VALUES", 512, "values", "that all these loops compute at most", "chosen by code size")
TRANSPOSE_EXTENT = row(
    "TRANSPOSE_EXTENT", 4, "elements", "of both axes from which on they are exchanged by tiles",
    CHOSEN)
OP_SLOTS_MIN = row(
    "OP_SLOTS_MIN", 2, "issue slots", "that any op takes at least, in the estimate of a kernel's "
    "time", CHOSEN)

REGION_MEMBERS_MAX = row(
    "REGION_MEMBERS_MAX", 100, "values", "of a region at most: longer chains of ops are several "
    "kernels, so that compiling takes no longer", "chosen; the largest region of the zoo has 82")
VIEWS_MAX = row(
    "VIEWS_MAX", 32, "views", "that a reader looks through at most: a copy is made of what lies "
    "deeper, since each view adds to the work of finding a position", CHOSEN)

# What is tried for a limit of memory: how many segments the forward pass is cut into, and which
# part of the regions may run again, the cheapest first. Chosen, not measured.
RERUN_SEGMENTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
RERUN_PARTS = (1.0, 0.75, 0.5, 0.25)
RERUN_TRIES_MAX = row(
    "RERUN_TRIES_MAX", 64, "regions", "that run again of which each is tried to be kept after all",
    CHOSEN)
RERUN_PLACED_MAX = row(
    "RERUN_PLACED_MAX", 4, "choices", "whose arenas are made before a limit is called too small",
    CHOSEN)
RERUN_MARGIN = row(
    "RERUN_MARGIN", 64, "parts of the limit", "one of which an estimate is lowered by where the "
    "arena was too large", CHOSEN)
RERUN_LISTED = row(
    "RERUN_LISTED", 3, "buffers", "that the error of a limit names", CHOSEN)

SCATTER_PART = row(
    "SCATTER_PART", 32, "elements", "of a long update that a worker adds: two cache lines", CHOSEN)
SCATTER_PARTS_MAX = row(
    "SCATTER_PARTS_MAX", 16, "parts", "of an update that workers share: each reads all", CHOSEN)
SCATTER_UNROLL = row(
    "SCATTER_UNROLL", 4, "updates", "in one turn of the loop over them", "on a Xeon with AVX-512, "
    "100,000 updates of one element take 69 us with 1, 61 with 4 and 54 with 8, which is more code")

LATE_BYTES = row(
    "LATE_BYTES", 1 << 20, "bytes", "of a copy of inputs or weights from which on it is made right "
    "before it is read", "chosen: what the second cache holds until then")

NAME_LENGTH_MAX = row(
    "NAME_LENGTH_MAX", 48, "characters", "of layer and ops in the name of a kernel",
    "chosen: profilers cut off longer names")
