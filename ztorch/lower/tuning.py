"""Every tuned constant of lowering: its value, its unit, what it means, and how it was found.

The loop nests and cost models take their numbers from here by name. What differs from processor to
processor is no constant: it is a field of `machines.processors.Processor`.
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

_CHOSEN = "chosen, not measured"
_ZEN4 = "measured on Zen 4: products of 64 to 2048, one thread"
_ZEN3 = "measured on Zen 3: products of 64 to 1024, one thread"


def _row(name: str, value: Number, unit: str, meaning: str, evidence: str) -> Number:
    TABLE[name] = TunedConstant(name, value, unit, meaning, evidence)
    return value


# -- matrix products on a processor ----------------------------------------------------------------

TILE_ROWS_MAX = _row(
    "TILE_ROWS_MAX", 16, "rows", "the most rows of a register tile",
    "14 rows of 2 vectors is the best tile of 32 registers on Zen 4; 16 rows spill")
TILE_VECTORS_MAX = _row(
    "TILE_VECTORS_MAX", 16, "vectors", "the most vectors of columns of a register tile",
    "one row of 16 vectors is the best tile of one row on Zen 4")
SPARE_REGISTERS = _row(
    "SPARE_REGISTERS", 1, "vector registers",
    "that a tile leaves free: with none left, LLVM keeps some of its sums in memory",
    "on Zen 3, 4 rows of 3 vectors (all 16 registers) reach 45 GFLOP/s, 6 rows of 2 reach 97")
TILE_START_CYCLES = _row(
    "TILE_START_CYCLES", 12.0, "cycles", "to begin a register tile: counters, addresses, zeros",
    _CHOSEN)
TILE_RESULT_CYCLES = _row(
    "TILE_RESULT_CYCLES", 2.0, "cycles per vector", "to store a finished vector of a tile", _CHOSEN)
TILING_GAIN = _row(
    "TILING_GAIN", 0.999, "ratio",
    "a later tiling must take less than this share of the best time so far", _CHOSEN)
L1_SHARE = _row(
    "L1_SHARE", 0.5, "share of the cache",
    "how much of the first cache a panel of the right operand may fill", _CHOSEN)
L2_SHARE = _row(
    "L2_SHARE", 0.5, "share of the cache",
    "how much of the second cache the rows of the left operand may fill", _ZEN4)
PREFETCH_STEPS = _row(
    "PREFETCH_STEPS", 8, "steps along k",
    "how far ahead rows of the right operand are fetched that are not in the first cache", _ZEN4)
K_UNROLL = _row(
    "K_UNROLL", 4, "steps along k",
    "steps in one turn of the loop: fewer additions of counters beside the multiply-adds", _ZEN4)
PREFETCH_MAX = _row(
    "PREFETCH_MAX", 64, "steps along k", "the most that a schedule may fetch ahead", _CHOSEN)
UNROLL_MAX = _row(
    "UNROLL_MAX", 16, "steps along k", "the most that a schedule may unroll",
    "chosen by the size of the code")
INLINE_EPILOGUE_MEMBERS = _row(
    "INLINE_EPILOGUE_MEMBERS", 5, "values",
    "the longest epilogue that is repeated for each row of a tile; others are a loop over a local "
    "array", "chosen by the size of the code")
INLINE_EPILOGUE_DEPTH = _row(
    "INLINE_EPILOGUE_DEPTH", 256, "steps along k",
    "from this depth on every epilogue is a loop: its time is lost in that of the product", _CHOSEN)

# -- preparing operands ----------------------------------------------------------------------------

PAGE_BYTES = _row(
    "PAGE_BYTES", 4096, "bytes", "rows of the left operand that lie a multiple of this apart evict "
    "one another from the first cache", "on Zen 4 a product of 1024 falls from 107 to 80 GFLOP/s")
ROW_PADDING_BYTES = _row(
    "ROW_PADDING_BYTES", 64, "bytes", "added to such rows in a copy: one line of the cache", _ZEN4)
PACK_ROWS = _row(
    "PACK_ROWS", 512, "rows", "from which on a right operand larger than the second cache is "
    "packed", _ZEN4)
PACK_ROWS_MIN = _row(
    "PACK_ROWS_MIN", 12, "rows", "from which on a right operand whose rows push one another out of "
    "the second cache is packed: two tiles of rows", _ZEN3)
PACK_OVERFLOW = _row(
    "PACK_OVERFLOW", 48, "rows", "times how often such a panel overflows the cache, from which on "
    "it is packed", "on Zen 3 packing wins for 32 rows of 512 x 512 and 16 of 1024 x 1024, and "
    "loses for 16 of 512 x 512")
PACK_ROWS_PAGES = _row(
    "PACK_ROWS_PAGES", 24, "rows", "from which on a right operand whose rows lie whole pages apart "
    "is packed", "on Zen 3, 24 x 64 x 1024: 53 GFLOP/s become 66; 1024 x 64 x 1024: 58 become 93")
PACK_DEPTH_PAGES = _row(
    "PACK_DEPTH_PAGES", 32, "steps along k", "of such a product at least",
    "on Zen 3, 100 x 32 x 1024: 53 GFLOP/s become 71")
LINE_BYTES = _row(
    "LINE_BYTES", 64, "bytes", "of a line of every cache", "public figure")
NARROW_ROWS = _row(
    "NARROW_ROWS", 2, "rows", "up to which a product waits for its weights, and reads them in 16 "
    "bits where mixed precision allows it", _CHOSEN)
WINDOW_ROWS = _row(
    "WINDOW_ROWS", 6, "rows", "of a tile from which on windows of an image are read where they lie",
    _CHOSEN)
COPY_COLUMNS = _row(
    "COPY_COLUMNS", 64, "columns", "of a product from which on a copy of its left operand pays, "
    "where rows lie apart in a way that tiles read badly",
    "on Zen 3, 128 x 2048 x 512 with the left operand transposed: 54 GFLOP/s become 88")
PRODUCT_DEPTH = _row(
    "PRODUCT_DEPTH", 2048, "steps along k", "of each part of a deep product, which caches hold",
    "on Zen 3, 256 x 16384 x 768: 50 GFLOP/s become 87; 576 x 12544 x 64: 61 become 72")
DEEP_PRODUCT_SIZE = _row(
    "DEEP_PRODUCT_SIZE", 64, "rows and columns", "of a product at least that is cut along k",
    _CHOSEN)
SPLIT_DEPTH = _row(
    "SPLIT_DEPTH", 256, "steps along k", "of each part at least, where a product on a grid is cut "
    "along k", _CHOSEN)
SPLIT_TILE = _row(
    "SPLIT_TILE", 64, "rows and columns", "of the tiles that are counted to see whether a grid has "
    "enough of them without cutting k", _CHOSEN)
LONG_REDUCTION = _row(
    "LONG_REDUCTION", 1 << 15, "elements for each result",
    "from which on a reduction is done in two steps, so that workers can share the first", _CHOSEN)
LONG_REDUCTION_RESULTS = _row(
    "LONG_REDUCTION_RESULTS", 64, "results", "up to which a reduction is done in two steps",
    _CHOSEN)
LONG_REDUCTION_PARTS = _row(
    "LONG_REDUCTION_PARTS", 64, "parts", "the most parts of the first step", _CHOSEN)

# -- wide values, such as the scores of attention --------------------------------------------------

WIDE_RATIO = _row(
    "WIDE_RATIO", 4.0, "ratio", "of the columns of a product to its steps along k, from which on "
    "its result may be computed in blocks of rows", _CHOSEN)
WIDE_BYTES = _row(
    "WIDE_BYTES", 1 << 18, "bytes", "of one matrix of wide values from which on it is computed in "
    "blocks of rows", "on Zen 3, attention of 12 heads of 64: blocks take 1.07 of the time at 128 "
    "positions, 0.98 at 256, 0.87 at 512, 0.6 at 1024; training likewise; causal less than that")
WIDE_STEPS = _row(
    "WIDE_STEPS", 256, "steps along k", "of such a product at most: each block reads its right "
    "operand again", "chosen: the widest head of attention in use")
BLOCK_SHARE = _row(
    "BLOCK_SHARE", 0.5, "share of the cache", "how much of the second cache a block of a wide "
    "value may fill", "on Zen 3, 8 x 1024 x 64: blocks of 32, 64 and 128 rows take 29.3, 29.8 and "
    "31.4 ms")
BLOCK_ROWS_MIN = _row(
    "BLOCK_ROWS_MIN", 32, "rows", "of a block at least: with fewer, products wait for their right "
    "operand", "on Zen 3, 4096 positions, causal, with gradients: 16, 32 and 64 rows take 293, 255 "
    "and 234 ms; 16,384 forward: 1.08, 1.25 and 1.39 s")
BLOCK_ROWS_MAX = _row(
    "BLOCK_ROWS_MAX", 64, "rows", "of a block at most",
    "on Zen 3, 128 rows are slower than 64 at 1024 positions")
BLOCK_SEGMENTS = _row(
    "BLOCK_SEGMENTS", 4, "segments", "of rows that may see different numbers of columns: with "
    "four, causal attention takes 5/8 of the work of all columns", "chosen by the size of the code")
GRID_WIDE_BYTES = _row(
    "GRID_WIDE_BYTES", 1 << 33, "bytes", "of all wide values of one shape, from which on a grid "
    "computes them in blocks of rows: what would not fit its memory", _CHOSEN)
GRID_BLOCK_BYTES = _row(
    "GRID_BLOCK_BYTES", 1 << 28, "bytes", "of such a block on a grid", _CHOSEN)

# -- elementwise and reducing loops on a processor -------------------------------------------------

SHARED_TURN_ELEMENTS = _row(
    "SHARED_TURN_ELEMENTS", 1024, "elements",
    "of one turn of a loop that workers share: longer turns take one more axis into that loop",
    _CHOSEN)
SHARED_TURNS = _row(
    "SHARED_TURNS", 64, "turns", "that are left for workers to share at least", _CHOSEN)
COLUMN_VECTORS = _row(
    "COLUMN_VECTORS", 4, "vectors", "of columns that are reduced side by side in one loop",
    "chosen: four sums cover the latency of an addition")
COLUMN_TURNS = _row(
    "COLUMN_TURNS", 4, "turns", "that are left for workers to share at least, where there are no "
    "rows to share", _CHOSEN)
COLUMN_MEMBERS = _row(
    "COLUMN_MEMBERS", 32, "values for each reduction",
    "the most of a region whose columns are reduced side by side", "chosen by the size of the code")
ROW_SUMS = _row(
    "ROW_SUMS", 4, "vectors", "that are added up side by side along a row",
    "chosen: four sums cover the latency of an addition")
ROW_SUM_VECTORS = _row(
    "ROW_SUM_VECTORS", 8, "vectors", "of a row from which on it has several sums", _CHOSEN)
SIDE_BY_SIDE_MAX = _row(
    "SIDE_BY_SIDE_MAX", 8, "vectors", "the most that a schedule may compute side by side",
    "chosen by the size of the code")
RECOMPUTE_SLOTS = _row(
    "RECOMPUTE_SLOTS", 8, "issue slots",
    "above which a value that a later pass needs is stored and not computed again", _CHOSEN)
SCATTER_BYTES_MAX = _row(
    "SCATTER_BYTES_MAX", 256, "bytes", "the longest run of neighbours for which a copy keeps to "
    "the order of what it reads, not of what it writes", "on Zen 3 packing 1024 x 1024 in panels "
    "of 64 bytes takes a third of the time so")
SCATTER_STRIDE_BYTES = _row(
    "SCATTER_STRIDE_BYTES", 1024, "bytes", "from one such run to the next, from which on it does",
    _CHOSEN)
TRANSPOSE_EXTENT = _row(
    "TRANSPOSE_EXTENT", 4, "elements", "of both axes from which on they are exchanged by tiles",
    _CHOSEN)
OP_SLOTS_MIN = _row(
    "OP_SLOTS_MIN", 2, "issue slots", "that any op takes at least, in the estimate of a kernel's "
    "time", _CHOSEN)

NAME_LENGTH_MAX = _row(
    "NAME_LENGTH_MAX", 48, "characters", "of layer and ops in the name of a kernel",
    "chosen: profilers cut off longer names")

# -- grids -----------------------------------------------------------------------------------------

GROUP_THREADS = _row(
    "GROUP_THREADS", 256, "threads", "of a workgroup, where nothing asks for another number",
    _CHOSEN)
THREAD_ELEMENTS = _row(
    "THREAD_ELEMENTS", 4, "elements", "that a thread adds up before another thread joins it",
    _CHOSEN)
THREAD_ELEMENTS_FEW = _row(
    "THREAD_ELEMENTS_FEW", 2, "elements", "the same where there are too few results to occupy the "
    "machine", _CHOSEN)
COLUMN_NEIGHBOURS = _row(
    "COLUMN_NEIGHBOURS", 32, "elements", "that neighbouring threads read together",
    "chosen: 32 elements of 4 bytes are the 128 bytes that a GPU loads at once")
SHARED_LOAD_COST = _row(
    "SHARED_LOAD_COST", 1.5, "multiply-adds", "that a load from shared memory takes the time of",
    _CHOSEN)
GRID_TILE_START = _row(
    "GRID_TILE_START", 32, "steps along k", "that beginning and finishing a tile take the time of",
    _CHOSEN)
STRIP_PADDING = _row(
    "STRIP_PADDING", 4, "elements", "added to each row of a strip: threads that store down it "
    "would wait for one bank of memory otherwise; a multiple of each vector", _CHOSEN)
MMA_NARROW_COST = _row(
    "MMA_NARROW_COST", 1 / 8, "multiply-adds of a thread", "that one of a matrix instruction on "
    "operands of 16 bits, or rounded ones, takes the time of", _CHOSEN)
MMA_WIDE_COST = _row(
    "MMA_WIDE_COST", 1 / 2, "multiply-adds of a thread", "the same on operands that keep all bits",
    _CHOSEN)
MMA_STRIP_COST = _row(
    "MMA_STRIP_COST", 6.0, "multiply-adds of a thread", "that bringing one element of a strip "
    "takes the time of", _CHOSEN)
MMA_DEPTH = _row(
    "MMA_DEPTH", 16, "steps along k", "of a strip at least", _CHOSEN)
MMA_DEPTH_PRODUCTS = _row(
    "MMA_DEPTH_PRODUCTS", 2, "matrix instructions", "along k of a strip at least", _CHOSEN)
MMA_PADDING = _row(
    "MMA_PADDING", 8, "elements", "added to each row of a strip, so that threads that load "
    "together find different banks of memory", _CHOSEN)
MMA_ALIGN_BYTES = _row(
    "MMA_ALIGN_BYTES", 16, "bytes", "that rows of matrices are aligned to", "what the instructions "
    "that load matrices ask for")

# Tiles of a product on a grid that are tried: rows, columns, depth of a strip, and the rows and
# columns of one thread. Chosen, not measured.
GRID_TILES = (
    (128, 128, 8, 8, 8), (128, 64, 8, 8, 4), (64, 128, 8, 4, 8), (64, 64, 16, 4, 4),
    (32, 64, 16, 2, 4), (64, 32, 16, 4, 2), (32, 32, 16, 2, 2), (16, 64, 16, 1, 4),
    (16, 32, 16, 1, 2), (16, 16, 16, 1, 1), (8, 16, 16, 1, 1), (8, 8, 8, 1, 1))
# The same with matrix instructions: rows, columns, subgroups down and across.
MMA_TILES = (
    (64, 128, 2, 4), (128, 64, 4, 2), (64, 64, 2, 2), (32, 64, 1, 4), (64, 32, 4, 1),
    (32, 32, 2, 2), (16, 64, 1, 4), (64, 16, 4, 1), (16, 16, 1, 2), (16, 16, 1, 1))
