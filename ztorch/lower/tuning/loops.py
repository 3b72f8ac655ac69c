"""Loops on a processor: elementwise work, reductions, copies, blocks of rows, and recurrences."""

from __future__ import annotations

from ztorch.lower.tuning.table import CHOSEN, row

_CODE_SIZE = "chosen by the size of the code"

# -- elementwise work and reductions ---------------------------------------------------------------

SHARED_ITERATION_ELEMENTS = row(
    "SHARED_ITERATION_ELEMENTS", 1024, "elements", "the longest iteration of a loop that workers "
    "share; a longer one adds an axis to the loop", CHOSEN)
LONG_ELEMENT = row(
    "LONG_ELEMENT", 24, "issue slots",
    "the lowest cost of an element for which several vectors are computed side by side",
    "on Zen 4 with AVX2, sin takes 0.66 of the time, x ** 1.3 0.77; exp and log 1.0")
LONG_WIDE_ELEMENT = row(
    "LONG_WIDE_ELEMENT", 36, "issue slots",
    "the same for vectors wider than the ports, if they leave a rest of a row",
    "on Zen 4, softplus takes 0.88 of the time and erfc 0.75, but sin, erf and GELU 1.0")
ELEMENT_VECTORS = row(
    "ELEMENT_VECTORS", 4, "vectors",
    "vectors of elements that are computed side by side",
    "on Zen 4 an option's price takes 3.35, 2.74 and 2.32 ms with 1, 2 and 4 vectors of AVX2, "
    "1.93, 1.85 and 1.63 ms of AVX-512")
LONG_ROW_VECTORS = row(
    "LONG_ROW_VECTORS", 8, "times",
    "the least length of a row, in these groups of vectors, if it is not a multiple of a group",
    "chosen: the masked rest costs as much as a whole iteration")
GATHERED_ROW = row(
    "GATHERED_ROW", 4, "elements",
    "adjacent elements that a lane loads at once in place of as many gathers",
    "on Zen 4 a million normal draws take 1.77 ms instead of 2.68, with AVX2 2.29 instead of 3.06")
SHORTEST_VECTOR = row(
    "SHORTEST_VECTOR", 4, "lanes", "the shortest vector along a row that fits in it", CHOSEN)
SHUFFLED_VECTORS = row(
    "SHUFFLED_VECTORS", 4, "vectors",
    "the most vectors that one of a block of short rows is shuffled out of", CHOSEN)
VECTORS_TOGETHER = row(
    "VECTORS_TOGETHER", 4, "vectors",
    "the most vectors of a block of short rows that are computed before they are written",
    "chosen: rows of three elements fill three vectors, which share what they read")
LANES_OF_GATHERS = row(
    "LANES_OF_GATHERS", 4, "lanes", "lanes of a vectorized loop with indirect loads",
    "chosen: four scalar loads are as fast as a gather instruction on any processor")
KNOWN_LOOP = row(
    "KNOWN_LOOP", 16, "iterations",
    "the shortest loop of a known number of iterations, without sums, that has lanes", CHOSEN)
WEIGHTS_MIN = row(
    "WEIGHTS_MIN", 4, "elements",
    "the fewest row-invariant elements that are kept in registers", CHOSEN)
WEIGHTS_SHARE = row(
    "WEIGHTS_SHARE", 0.5, "share of the vector registers",
    "the most registers for row-invariant elements", CHOSEN)
SHARED_ITERATIONS = row(
    "SHARED_ITERATIONS", 64, "iterations",
    "the fewest iterations that remain for workers to share", CHOSEN)
COLUMN_VECTORS = row(
    "COLUMN_VECTORS", 4, "vectors",
    "vectors of columns that are reduced side by side in one loop",
    "chosen: four sums cover the latency of an addition")
COLUMN_VECTORS_FAR = row(
    "COLUMN_VECTORS_FAR", 8, "vectors",
    "the same if vectors are shorter than a cache line, or rows are whole pages apart",
    "on Zen 4, sums of columns, 4 and 8 vectors: at AVX2 1024 x 1024 154 and 67 us, 4096 x 512 185 "
    "and 124, 300 x 3000 49 and 46; at AVX-512 79 and 54, 125 and 127, 45 and 44")
COLUMN_ITERATIONS = row(
    "COLUMN_ITERATIONS", 2, "iterations",
    "the fewest iterations that remain for workers to share if there are no rows to share",
    "on Zen 4 at AVX2, sums of 6,400 x 16 take 19.5 us by 2 loops and 10.3 by one; statistics of "
    "8,192 x 32 190 us by 4 and 65 by one")
COLUMN_VALUES = row(
    "COLUMN_VALUES", 128, "values",
    "the most values of neighboring columns that are computed without a loop", _CODE_SIZE)
ROW_SUMS = row(
    "ROW_SUMS", 4, "vectors",
    "partial sums along a row",
    "chosen: four sums cover the latency of an addition")
ROW_SUM_VECTORS = row(
    "ROW_SUM_VECTORS", 8, "vectors", "the shortest row that has several partial sums", CHOSEN)
NEXT_ROW_SHARE = row(
    "NEXT_ROW_SHARE", 0.25, "share of the cache",
    "how much of the L1 cache the next row may fill, which is prefetched during a second pass",
    "chosen: the row itself, its results and row-invariant elements take the rest")
NEXT_ROW_CACHE_SHARE = row(
    "NEXT_ROW_CACHE_SHARE", 0.5, "share of the cache",
    "how much of the L3 cache the rows and their results may fill if the next one is prefetched, "
    "unless the second pass takes long",
    "on Zen 4, x + residual and layer norm of 512 x 768 takes 0.86 of the time, with AVX2 0.91; "
    "from memory, 4096 x 1024, 1.12; softmax from memory, of 8192 x 1024 and x 2048, 0.98 and 0.82")
SIDE_BY_SIDE_MAX = row(
    "SIDE_BY_SIDE_MAX", 8, "vectors",
    "the most vectors that a schedule may compute side by side", _CODE_SIZE)
LOCAL_ROW_BYTES = row(
    "LOCAL_ROW_BYTES", 1 << 15, "bytes",
    "the longest row of intermediate values that is kept on the stack, not in a buffer",
    "on Zen 4, softmax of 4096 x 1024: 2.10 ms become 1.40, of 4096 x 2048 4.25 become 3.70, of "
    "256 x 2048 237 us become 216; 2048 x 8192 and smaller ones are level")
RECOMPUTE_SLOTS = row(
    "RECOMPUTE_SLOTS", 8, "issue slots",
    "the highest cost of a value that is computed again, not stored, for a later pass", CHOSEN)
OP_SLOTS_MIN = row(
    "OP_SLOTS_MIN", 2, "issue slots",
    "the least cost of an op in the estimate of a kernel's time", CHOSEN)
LONG_REDUCTION = row(
    "LONG_REDUCTION", 1 << 15, "elements for each result",
    "the shortest reduction that is done in two steps, so that workers can share the first", CHOSEN)
LONG_REDUCTION_RESULTS = row(
    "LONG_REDUCTION_RESULTS", 64, "results",
    "the most results of a reduction in two steps", CHOSEN)
LONG_REDUCTION_PARTS = row(
    "LONG_REDUCTION_PARTS", 64, "parts", "the most parts of the first step", CHOSEN)
REDUCTION_PART_WIDTH = row(
    "REDUCTION_PART_WIDTH", 64, "elements", "the least length of such a part of the last axis",
    "Zen 4: the sum over 64 x 64 x 128, in parts of 2 channels, took 960 us, in 64 rows 60")
LONG_COLUMNS = row(
    "LONG_COLUMNS", 1024, "elements for each result",
    "the shortest columns that are reduced in parts", CHOSEN)
LONG_COLUMNS_BYTES = row(
    "LONG_COLUMNS_BYTES", 1 << 20, "bytes",
    "the smallest matrix whose columns are reduced in parts",
    "chosen: a smaller one is in the L2 cache, which does not need to fetch ahead")
LONG_COLUMNS_MIN = row(
    "LONG_COLUMNS_MIN", 33, "columns",
    "the fewest columns that are reduced in parts",
    "two vectors of AVX-512 are 32, a whole row: training with batch normalization of 32 channels "
    "at 16 x 56 x 56 took 1.1 times as long in parts")
LONG_COLUMNS_MAX = row(
    "LONG_COLUMNS_MAX", 128, "columns",
    "the most columns that are reduced in parts",
    "on Zen 4, in parts, 32,768 x 128 takes 0.23 of the time, 50,000 x 65 0.32, 16,384 x 64 0.75; "
    "16,384 x 256 1.07, and a variance, whose second pass finds whole columns in the cache, 1.6")
LONG_COLUMNS_PARTS = row(
    "LONG_COLUMNS_PARTS", 16, "parts", "the most parts of columns",
    "on Zen 4, sums of 100,000 x 128 take 5.6 ms whole, 3.4 in 4 parts, 3.1 in 16")

ROWS_AHEAD = row(
    "ROWS_AHEAD", 8, "rows", "how far ahead rows of a table that is looked up are prefetched",
    "on Zen 4, 4096 of 100,000 rows of 512 bytes: 147 us without, 114 with 4, 107 with 8, 110 with "
    "16; 1024 of 30,522 rows of 3 KiB: 308, 269, 261, 275")
FETCHED_ROW_BYTES = row(
    "FETCHED_ROW_BYTES", 256, "bytes", "the shortest rows of a table that are prefetched",
    "on Zen 4, in C, rows of 128 bytes take 1.16 of the time")
STREAMED_SHARE = row(
    "STREAMED_SHARE", 1.5, "share of the cache",
    "the least bytes that elementwise work, or a reduction along rows, reads and writes for its "
    "stores to bypass the caches, as a share of the L3 cache",
    "on Zen 4, one thread, x * 1.5: of 24, 32 and 64 MiB 1.97, 2.48 and 5.16 ms become 1.57, 1.91 "
    "and 3.83; x + y of 64 MiB 8.15 become 5.74, a norm of 8192 x 1024 2.94 become 1.63, softmax "
    "is level; read by another kernel afterwards, of 16 MiB 0.90 of the speed, of 24 MiB 1.17")
STREAMED_BYTES = row(
    "STREAMED_BYTES", 48 << 20, "bytes",
    "the least bytes for which stores bypass the caches, whatever the size of the L3 cache",
    "chosen: several cores' parts together may hold the results")

# -- copies and updates ----------------------------------------------------------------------------

SCATTER_BYTES_MAX = row(
    "SCATTER_BYTES_MAX", 256, "bytes",
    "the longest contiguous run for which a copy follows the order of its source, not of its "
    "destination",
    "on Zen 3 this packs 1024 x 1024 in panels of 64 bytes in a third of the time")
SCATTER_STRIDE_BYTES = row(
    "SCATTER_STRIDE_BYTES", 1024, "bytes", "the least distance between these runs", CHOSEN)
SCATTER_RUNS = row(
    "SCATTER_RUNS", 4, "runs",
    "the most runs that are interleaved if their stride is a multiple of PAGE_BYTES",
    "on Zen 5 packing 1024 x 1024 in panels of 128 and 64 bytes takes 0.59 and 0.39 of the time, "
    "64 x 4096 0.32 and 0.27; 2 and 8 runs as much, 16 more")
SCATTER_PART = row(
    "SCATTER_PART", 32, "elements",
    "the least part of a long update that a worker adds: two cache lines", CHOSEN)
SCATTER_PARTS_MAX = row(
    "SCATTER_PARTS_MAX", 16, "parts",
    "the most workers that share an update: each of them reads all indices", CHOSEN)
SCATTER_BANDS = row(
    "SCATTER_BANDS", 4, "bands",
    "the workers that share the rows of a table with fewer updates than rows",
    "on Zen 4, one thread, 4096 updates of 50,000 x 128 take 1.3 ms in bands, 3.5 in 4 parts of "
    "the columns, 2.7 in 2: parts of rows are cleared with strides")
SCATTER_BAND_WIDTH = row(
    "SCATTER_BAND_WIDTH", 8, "elements",
    "the shortest update for which they do: each of them reads all indices", CHOSEN)
SCATTER_UNROLL = row(
    "SCATTER_UNROLL", 8, "updates",
    "updates in one iteration of their loop, each with a separate table if these are small",
    "on Zen 5, 100,000 updates of 64 places take 36.1 us with 4 and 34.6 with 8; sorted, so that "
    "each waits for the one before, 275 us in one table, 72 in 4 and 39 in 8")
SCATTER_TABLES = row(
    "SCATTER_TABLES", 8192, "bytes",
    "the largest private tables on the stack: part of the L1 cache", CHOSEN)
SCATTER_UPDATES = row(
    "SCATTER_UPDATES", 4, "updates",
    "updates for each element of these tables from which they pay", CHOSEN)
PART_GAIN = row(
    "PART_GAIN", 0.75, "ratio",
    "index-set splitting pays if the work of separate loops for parts and borders is below this "
    "share of the work of one loop that tests each element",
    "on Sapphire Rapids a border around 224 x 224 x 3 takes 18 us in place of 83")
PART_VALUES = row(
    "PART_VALUES", 512, "values", "the most values that all these loops compute", _CODE_SIZE)
TRANSPOSE_EXTENT = row(
    "TRANSPOSE_EXTENT", 4, "elements",
    "the shortest axes that are transposed in tiles of registers", CHOSEN)
TILES_ABREAST_MAX = row(
    "TILES_ABREAST_MAX", 8, "tiles",
    "the most tiles of a transpose that a schedule may put abreast",
    "chosen by the size of the code")
SHORT_ROW_BYTES = row(
    "SHORT_ROW_BYTES", 128, "bytes",
    "what tiles abreast read of a row whose lines the L1 cache would not keep for the next, if "
    "the result has short rows: a pair of lines",
    "on Zen 4, packing 512 rows of 2048 in panels of 32 columns takes 432 us with one tile of 8 "
    "lanes, 281 with two, 231 with four; 512 rows of 4608 588, 502 and 572")
TILES_AHEAD = row(
    "TILES_AHEAD", 4, "tiles",
    "how far ahead a transpose prefetches a source that comes from an outer cache or from memory",
    "on Zen 4 at AVX2, gradients of kernels: 1 x 1, 8 x 56 x 56 x 64 to 256 9.21 ms without, 8.76 "
    "with 2, 8.73 with 4, 8.90 with 8, 8.94 with 16; 32 x 14 x 14 x 1024 to 256 33.4, 32.7, 32.4, "
    "32.5, 32.4; 3 x 3 by 2, 8 x 28 x 28 x 128 to 256 9.28, 9.22, 9.17, 9.13, 9.19")

# -- large intermediates, such as the scores of attention ------------------------------------------

WIDE_RATIO = row(
    "WIDE_RATIO", 4.0, "ratio",
    "the least ratio of a product's columns to its steps along k for which it may be computed in "
    "blocks of rows", CHOSEN)
WIDE_BYTES = row(
    "WIDE_BYTES", 1 << 18, "bytes",
    "the smallest matrix that is computed in blocks of rows",
    "on Zen 3, attention of 12 heads of 64: blocks take 1.07 of the time at 128 positions, 0.98 "
    "at 256, 0.87 at 512, 0.6 at 1024; training likewise; causal less than that")
WIDE_STEPS = row(
    "WIDE_STEPS", 256, "steps along k",
    "the largest k of a product in blocks: each block reads the right operand again",
    "chosen: the widest head of attention in use")
BLOCK_SHARE = row(
    "BLOCK_SHARE", 0.5, "share of the cache",
    "how much of the L2 cache a block may fill",
    "on Zen 3, 8 x 1024 x 64: blocks of 32, 64 and 128 rows take 29.3, 29.8 and 31.4 ms")
BLOCK_ROWS_MIN = row(
    "BLOCK_ROWS_MIN", 32, "rows",
    "the fewest rows of a block: with fewer, products wait for their right operand",
    "on Zen 3, 4096 positions, causal, with gradients: 16, 32 and 64 rows take 293, 255 and 234 "
    "ms; 16,384 forward: 1.08, 1.25 and 1.39 s")
BLOCK_ROWS_MAX = row(
    "BLOCK_ROWS_MAX", 64, "rows",
    "the most rows of a block",
    "on Zen 3, 128 rows are slower than 64 at 1024 positions")
BLOCK_SEGMENTS = row(
    "BLOCK_SEGMENTS", 4, "segments",
    "segments of rows with different numbers of unmasked columns: with four, causal attention does "
    "5/8 of the work", CHOSEN)
BLOCK_SEGMENTS_MAX = row(
    "BLOCK_SEGMENTS_MAX", 8, "segments",
    "the most segments, where nothing is summed over rows",
    "on Zen 5, 1024 positions: eight take 0.94 of the time of four and twice as long to compile")
SEGMENT_BLOCKS = row(
    "SEGMENT_BLOCKS", 16, "blocks",
    "the fewest blocks of a segment if there are more than four",
    "on Zen 5, 4096 positions: eight segments take 0.92 of the time of four")

# -- recurrences: loops over iterations ------------------------------------------------------------

RECURRENCE_VALUES = row(
    "RECURRENCE_VALUES", 1000, "values",
    "the largest body of a loop that becomes one kernel", _CODE_SIZE)
RECURRENCE_READS = row(
    "RECURRENCE_READS", 4000, "elements",
    "the most elements that one element of a loop kernel computes and reads in an iteration; a "
    "value that is read at several positions is computed at each", _CODE_SIZE)
RECURRENCE_JOIN_SLOTS = row(
    "RECURRENCE_JOIN_SLOTS", 4, "issue slots",
    "the highest cost of an element of a sequence that is computed inside a loop kernel, its only "
    "reader", CHOSEN)
RECURRENCE_ROW_SLOTS = row(
    "RECURRENCE_ROW_SLOTS", 12, "issue slots",
    "the highest cost of an iteration for which contiguous iterations are computed by scalar code",
    "on Sapphire Rapids 256 iterations of 1024 rows take 0.16 ms with 2 slots, and 0.40 in "
    "vectors; with 16 slots 0.42 and 0.44")
RECURRENCE_VECTORS = row(
    "RECURRENCE_VECTORS", 4, "vectors",
    "the most vectors of elements that are interleaved: each iteration depends on the previous one",
    "on Zen 3, 100 iterations of 512 x 512 points of Mandelbrot's set take 7.0 ms with 1 vector, "
    "4.3 with 2, 3.5 with 4 and 4.4 with 8")
RECURRENCE_VECTORS_FAR = row(
    "RECURRENCE_VECTORS_FAR", 8, "vectors",
    "the same if the stride between iterations is a multiple of PAGE_BYTES: conflict misses",
    "on Zen 3, 1000 iterations of 4096 elements that are read and written take 9.3 ms with 1 "
    "vector, 2.9 with 4, 1.8 with 8")
RECURRENCE_SLOTS = row(
    "RECURRENCE_SLOTS", 1024, "issue slots",
    "the highest cost of an iteration of all vectors together, if there are several", _CODE_SIZE)
ITERATION_BLOCK_SHARE = row(
    "ITERATION_BLOCK_SHARE", 0.5, "share of the cache",
    "how much of the L2 cache a product for all iterations of a loop may fill; a larger one is "
    "strip-mined",
    "on a Xeon with 2 MB, LSTM (64, 32, 128), (1000, 16, 128), (256, 64, 256): 0.25 and 0.5 take "
    "0.88 to 0.94 of the time")
