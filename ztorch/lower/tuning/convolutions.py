"""Convolutions: Winograd transforms; on a processor products and sums of windows, correlations."""

from __future__ import annotations

from ztorch.lower.tuning.table import CHOSEN, row

_CODE_SIZE = "chosen by the size of the code"

# -- transformed convolutions (Winograd) -----------------------------------------------------------

TRANSFORM_CHANNELS = row(
    "TRANSFORM_CHANNELS", 16, "channels and filters",
    "the fewest channels and filters for which a 3 x 3 convolution is transformed", CHOSEN)
TRANSFORM_RESULTS = row(
    "TRANSFORM_RESULTS", 4, "results",
    "results along each axis of a tile: 36 multiplications give 16; with 2, 16 give 4",
    "on Zen 5, 56 x 56 x 64: 860 us become 290")
TRANSFORM_NEAR = row(
    "TRANSFORM_NEAR", 0.75, "position",
    "the nearer pair of points at which polynomials are evaluated",
    "of 9 choices with exact products, 0.75 and 1.5 have the least errors: 1.7e-6 of the largest "
    "result; 1 and 2 have 6.7e-6")
TRANSFORM_FAR = row(
    "TRANSFORM_FAR", 1.5, "position",
    "the farther pair of points",
    "see TRANSFORM_NEAR")
TRANSFORM_CYCLES = row(
    "TRANSFORM_CYCLES", 150.0, "cycles",
    "the time to transform a vector of a tile, or of its results",
    "on Zen 5, 128 x 128 x 16 is as fast either way, 64 x 64 x 32 takes 0.67 of the time")
TRANSFORM_SLOTS = row(
    "TRANSFORM_SLOTS", 8, "issue slots",
    "the cost of each element of a transform",
    "counted")
TRANSFORM_GAIN = row(
    "TRANSFORM_GAIN", 0.8, "ratio",
    "the estimated time of a transformed convolution to that of the plain product, below which it "
    "is transformed", CHOSEN)
TRANSFORM_KERNEL_SHARE = row(
    "TRANSFORM_KERNEL_SHARE", 0.25, "share of the L2 cache",
    "the largest transformed kernel of a convolution that is computed block by block of tiles, "
    "each from the image to its results",
    "on Zen 3, one thread, 32 of 32 x 32 x 16 take 2.2 ms in place of 4.0, one 36 us in place of "
    "49, one of 128 x 128 x 16 0.54 ms in place of 0.95; on Zen 4, kernels of 590 KB that each "
    "block reads take 1.15 of the time")
TRANSFORM_TILES = row(
    "TRANSFORM_TILES", 16, "tiles",
    "the fewest tiles of a block, if there are twice as many",
    "the rows of a register tile on AVX-512")
TRANSFORM_THREADS = row(
    "TRANSFORM_THREADS", 128, "threads",
    "the threads of a workgroup that transforms tiles on a grid: each holds all points of one",
    CHOSEN)

# -- products of windows ---------------------------------------------------------------------------

BORDER_DEPTH = row(
    "BORDER_DEPTH", 128, "steps along k",
    "the least depth of a convolution whose tiles skip steps in the border of the image",
    "chosen: a tile takes some 10 cycles to find them; on Zen 4, 3 x 3 x 3 of 16 x 16 x 16 x 64 "
    "8.05 ms to 7.43")

# -- sums over sliding windows ---------------------------------------------------------------------

SLIDING_REGISTERS = row(
    "SLIDING_REGISTERS", 0.5, "share of the vector registers",
    "those that hold sums of neighboring windows; the others hold weights of a row of the window, "
    "and elements", CHOSEN)
SLIDING_PAIRS = row(
    "SLIDING_PAIRS", 96, "pairs",
    "the most pairs of a window and an element of one of its rows that are computed without a "
    "loop", _CODE_SIZE)
SLIDING_VALUES = row(
    "SLIDING_VALUES", 160, "values",
    "the most values of neighboring windows that are computed without a loop", _CODE_SIZE)
SLIDING_BORDERS = row(
    "SLIDING_BORDERS", 6, "groups",
    "the most groups of neighboring windows at borders of an image that have separate code",
    _CODE_SIZE)

# -- correlations: results for each position of a window -------------------------------------------

CORRELATION_REGISTERS = row(
    "CORRELATION_REGISTERS", 0.8, "share of the vector registers",
    "those that hold the sums of offsets in a window; the others hold elements", CHOSEN)
CORRELATION_RESULTS = row(
    "CORRELATION_RESULTS", 64, "positions", "the most positions of a window", _CODE_SIZE)
CORRELATION_PAIRS = row(
    "CORRELATION_PAIRS", 96, "pairs",
    "the most pairs of a position of the window and one of the image that are computed without a "
    "loop", _CODE_SIZE)
CORRELATION_CODE = row(
    "CORRELATION_CODE", 2048, "pairs",
    "the most unrolled pairs in the code of all borders together", _CODE_SIZE)
CORRELATION_VECTORS = row(
    "CORRELATION_VECTORS", 2, "vectors",
    "the most vectors of channels that are interleaved over each row of an image",
    "on Zen 4, 4 images of 56 x 56 x 128: 1229 us with 1, 347 with 2, 354 with 4, 315 with 8, "
    "which leave fewer iterations for workers to share")
