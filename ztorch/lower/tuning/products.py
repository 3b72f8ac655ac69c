"""Matrix products on a processor: register tiles, their estimated time, and copies of operands."""

from __future__ import annotations

from ztorch.lower.tuning.table import CHOSEN, row

_ZEN4 = "measured on Zen 4: products of 64 to 2048, one thread"
_ZEN3 = "measured on Zen 3: products of 64 to 1024, one thread"

# -- tiles -----------------------------------------------------------------------------------------

TILE_ROWS_MAX = row(
    "TILE_ROWS_MAX", 16, "rows",
    "the most rows of a register tile",
    "14 rows of 2 vectors is the best tile of 32 registers on Zen 4; 16 rows spill")
TILE_VECTORS_MAX = row(
    "TILE_VECTORS_MAX", 16, "vectors",
    "the most vectors of columns of a register tile",
    "one row of 16 vectors is the best tile of one row on Zen 4")
TILE_PRODUCTS_MAX = row(
    "TILE_PRODUCTS_MAX", 4, "products",
    "the most products of the same rows that one tile computes, so that it has two rows even with "
    "16 registers", CHOSEN)
COLUMN_GROUP_ROWS = row(
    "COLUMN_GROUP_ROWS", 8, "rows",
    "the most rows of a product that is divided into groups of columns, so that one kernel "
    "computes the gates of a recurrent layer with their products",
    "on Zen 4, two workers, cores on one die: LSTM of 100 steps, 1 row, 128 units 218 us apart, "
    "202 together; GRU 165, 157; 32 steps of 8 rows, 64 units 95, 94; GRU of 1000 steps of 16 "
    "rows, 128 units 15.8 ms, 16.3")
HALF_VECTORS_GAIN = row(
    "HALF_VECTORS_GAIN", 0.9, "ratio",
    "half vectors are used if their number is below this share of twice the full vectors, and if a "
    "full vector occupies a port for two cycles",
    "on Zen 4 at AVX-512, 50,176 rows of 25 x 6: 402 us become 225")
SPARE_REGISTERS = row(
    "SPARE_REGISTERS", 1, "vector registers",
    "registers that a tile leaves free unless each step prefetches: LLVM moves loads to an earlier "
    "step, but not across a prefetch, and spills some sums if no register is free",
    "on Zen 3, 4 rows of 3 vectors (all 16 registers) reach 45 GFLOP/s, 6 rows of 2 reach 97; on "
    "Zen 4 at AVX2, 8 x 1000 x 500 takes 73 us with 4 rows of 3 vectors and prefetches, 83 with 4 "
    "of 2; 64 x 96 x 256 without prefetches 64 and 33")
L1_SHARE = row(
    "L1_SHARE", 0.5, "share of the cache",
    "how much of the L1 cache a panel of the right operand may fill", CHOSEN)
L2_SHARE = row(
    "L2_SHARE", 0.5, "share of the cache",
    "how much of the L2 cache the rows of the left operand may fill", _ZEN4)
BLOCK_TILES = row(
    "BLOCK_TILES", 8, "tiles",
    "the most row tiles in a block that reads its panel once, if the L2 cache could hold B: the "
    "first read comes from an outer cache, and the block shares its latency",
    "on Sapphire Rapids, 49 x 160 x 1280 within MNASNet: 179 us become 127")
FAR_BLOCK_TILES = row(
    "FAR_BLOCK_TILES", 22, "tiles",
    "the row tiles of a block that reads packed panels from memory, if the L2 cache could hold no "
    "more than BLOCK_TILES; A then comes from the L3 cache",
    "on Zen 3, 2048 x 2048 x 2048: 5 tiles, which fit, take 0.96 of the time with prefetches, 22 "
    "take 0.84, 43 take 0.93")
BLOCK_ITERATIONS = row(
    "BLOCK_ITERATIONS", 8, "iterations",
    "the fewest iterations that then remain for workers to share", CHOSEN)
BLOCK_DEPTH_SHARE = row(
    "BLOCK_DEPTH_SHARE", 0.5, "share of the cache",
    "how much of the L1 cache the lines of A that one tile reads in a block along k may fill, if "
    "each step reads another line and the L2 cache cannot hold those of all steps",
    "on Zen 4 at AVX-512, 1152 x 256 x 1568 with windows read across: 90 % of the peak become 95; "
    "392 and 196 steps are level. Where A is read along its rows, blocks of 64 to 384 steps lose 1 "
    "to 10 % at AVX2 and gain nothing at AVX-512")
BLOCK_SUMS_BYTES = row(
    "BLOCK_SUMS_BYTES", 1 << 18, "bytes",
    "the most sums of a block that wait on the stack for the next part of k: a part of the L2 "
    "cache, and of the stacks of threads", CHOSEN)
BLOCK_PANEL_BYTES = row(
    "BLOCK_PANEL_BYTES", 1 << 18, "bytes",
    "the largest panel of B that a block copies to the stack: see BLOCK_SUMS_BYTES", CHOSEN)
FREE_WAYS = row(
    "FREE_WAYS", 2, "ways of the L1 cache",
    "the ways of a set that rows of A which are whole pages apart leave to B",
    "on Zen 4 at AVX-512, 16 x 1024 x 1024: tiles of 16 rows take 630 us, of 8 rows and 3 vectors "
    "303, of 6 and 4 303; 64 x 1024 x 1024: 13 rows 1403, 8 rows 1192, 6 rows 1173")
PREFETCH_STEPS = row(
    "PREFETCH_STEPS", 8, "steps along k",
    "the prefetch distance of rows of the right operand if the L1 cache does not hold them; packed "
    "panels that more than BLOCK_TILES tiles read have none if a vector is shorter than a line",
    _ZEN4 + "; on Zen 3 with packed panels and without prefetches, 512 x 512 x 512 takes 0.92 of "
    "the time, 252 x 256 x 512 0.97, 2048 x 2048 x 2048 0.9; 32 x 512 x 784 is level")
PREFETCH_SHARE = row(
    "PREFETCH_SHARE", 1 / 8, "share of the rows",
    "how many of the rows that the L1 cache can hold, given their stride, are prefetched",
    "on Zen 4 at AVX2, 32 x 512 x 512: 8 steps ahead take 198 us, 4 take 169, 2 take 165; "
    "32 x 1024 x 1024 takes 1.63 ms with 8, 1.43 with 4, 1.14 with 2")
PREFETCH_MAX = row(
    "PREFETCH_MAX", 64, "steps along k", "the farthest that a schedule may prefetch", CHOSEN)
K_UNROLL = row(
    "K_UNROLL", 4, "steps along k",
    "steps in one iteration of the k loop: fewer counter updates per multiply-add", _ZEN4)
ONE_ROW_STRIDE = row(
    "ONE_ROW_STRIDE", 1024, "bytes",
    "the most bytes of a panel in one iteration of the k loop of a single row: hardware prefetches "
    "for a load whose addresses are closer than that",
    "on Zen 4, 1 x 384 x 1536 from memory: 11 GB/s with 1,536 bytes, 32 GB/s with 1,024")
UNROLL_MAX = row(
    "UNROLL_MAX", 16, "steps along k",
    "the most steps that a schedule may unroll",
    "chosen by the size of the code")
UNROLL_WHOLE = row(
    "UNROLL_WHOLE", 2, "times the unrolled steps",
    "the longest inner loop along k, such as the width of a window, that is unrolled whole", CHOSEN)
INLINE_EPILOGUE_MEMBERS = row(
    "INLINE_EPILOGUE_MEMBERS", 5, "values",
    "the longest epilogue that is unrolled over the rows of a tile; a longer one is a loop over a "
    "local array",
    "chosen by the size of the code")
INLINE_EPILOGUE_DEPTH = row(
    "INLINE_EPILOGUE_DEPTH", 256, "steps along k",
    "the k from which every epilogue is a loop: the product takes far longer", CHOSEN)
SHALLOW_DEPTH = row(
    "SHALLOW_DEPTH", 32, "steps along k",
    "the deepest product of which a longer epilogue of cheap ops is unrolled",
    "on Zen 4, 1024 x k x 32 with relu6, unrolled: 0.84 of the time at AVX2 if k is 8, 0.96 if it "
    "is 32; 0.87 and 0.97 at AVX-512")
SHALLOW_MEMBERS = row(
    "SHALLOW_MEMBERS", 8, "values", "the longest such epilogue", CHOSEN)
SHALLOW_SLOTS = row(
    "SHALLOW_SLOTS", 12, "issue slots", "the most that it spends on an element",
    "chosen: gelu, which spends more, takes as long unrolled")
EPILOGUE_SHARE = row(
    "EPILOGUE_SHARE", 2.0, "times the cache",
    "the size of the operands or results of an epilogue, or of the left operand, in L2 caches, "
    "from which on tiles prefetch them",
    "on Zen 4 a step of an MLP 784-512-512-10 with Adam takes 1.28 and 4.24 ms without for 32 and "
    "128 rows, 1.23 and 4.00 with it; at AVX2 1.37 and 4.53, 1.36 and 4.24; with SGD, whose "
    "operands are 1.6 MB, 0.97 and 0.98; 25,088 x 64 x 256 and 25,088 x 256 x 64, results and "
    "left operand of 25.7 MB, 9.8 and 8.4 ms at AVX2, 7.2 and 7.5 with it; at AVX-512 9.5 and 8.6, "
    "7.3 and 7.5")

# -- the estimated time of tiles -------------------------------------------------------------------

TILE_START_CYCLES = row(
    "TILE_START_CYCLES", 12.0, "cycles",
    "the time to begin a register tile: counters, addresses, zeros", CHOSEN)
TILE_RESULT_CYCLES = row(
    "TILE_RESULT_CYCLES", 2.0, "cycles per vector",
    "the time to store a finished vector of a tile", CHOSEN)
FETCH_SHARE = row(
    "FETCH_SHARE", 0.25, "share of the time",
    "the part of the time to load a tile's operands from the L2 cache that does not overlap with "
    "multiply-adds: large tiles need fewer bytes per multiply-add",
    "on Sapphire Rapids, 512 x 512 x 512: 7 rows of 3 vectors reach 180 GFLOP/s, 14 of 2 reach "
    "195; 2048 x 2048 x 2048: 6 of 3 reach 139, 14 of 2 reach 150")
FEW_SUMS = row(
    "FEW_SUMS", 1.5, "times the multiply-adds in flight",
    "the sums of a tile below which some multiply-adds wait for one another", CHOSEN)
FEW_SUMS_CYCLES = row(
    "FEW_SUMS_CYCLES", 0.25, "cycles a step along k",
    "how long they wait",
    "on Zen 4 at AVX2, 1560 x 256 x 240 in tiles of 2 vectors: 6 rows reach 98 % of the peak, 5 "
    "and 4 rows 93; 1560 x 256 x 1152: 97, 92 and 90")
TILING_GAIN = row(
    "TILING_GAIN", 0.999, "ratio",
    "a later tiling must take less than this share of the best time so far", CHOSEN)
ONE_HEIGHT_GAIN = row(
    "ONE_HEIGHT_GAIN", 0.965, "ratio",
    "tiles of two heights, which are twice the code, must take less than this share of the time of "
    "tiles of one height",
    "on Zen 5, 1600 rows of 256 columns take 193 us in tiles of 14 and 13 rows, 191 in tiles of "
    "10; compiling takes 20 ms less")
ONE_HEIGHT_CYCLES = row(
    "ONE_HEIGHT_CYCLES", 1e6, "cycles",
    "the longest product for which that holds",
    "on Zen 5, 2000 rows of 512 columns, 512 deep, take 3.92 ms in tiles of 14 rows, 3.99 in "
    "tiles of 10")

# -- preparing operands ----------------------------------------------------------------------------

PAGE_BYTES = row(
    "PAGE_BYTES", 4096, "bytes",
    "row strides that are a multiple of this size cause conflict misses in the L1 cache",
    "on Zen 4 a product of 1024 falls from 107 to 80 GFLOP/s")
ROW_PADDING_BYTES = row(
    "ROW_PADDING_BYTES", 64, "bytes",
    "the padding of rows with conflict misses: one cache line",
    "on Zen 4 attention of 1024 positions takes 32.5 ms without, 22.3 with it; with gradients 71.9 "
    "with unpadded scores, 69.3 with padded ones")
LINE_BYTES = row(
    "LINE_BYTES", 64, "bytes",
    "the size of a cache line",
    "public figure")
PACK_ROWS = row(
    "PACK_ROWS", 512, "rows",
    "the fewest rows for which a right operand larger than the L2 cache is packed", _ZEN4)
PACK_ROWS_MIN = row(
    "PACK_ROWS_MIN", 12, "rows",
    "the fewest rows for which a right operand with conflict misses in the L2 cache is packed: two "
    "row tiles", _ZEN3)
PACK_ROWS_NEAR = row(
    "PACK_ROWS_NEAR", 384, "rows",
    "the fewest rows for which a right operand with conflict misses in the L1 cache is packed, if "
    "a vector is shorter than a cache line",
    "on Zen 4 at AVX2, gradients of 512 x 512 with k of 128: 694 us become 616, of 768 x 512 "
    "1.14 ms become 0.93; 128 rows are level")
PACK_ROWS_BLOCK = row(
    "PACK_ROWS_BLOCK", 24, "rows",
    "the fewest rows for which the first tile of a block copies its panel of a right operand, if "
    "its rows cause conflict misses in the L1 cache and are not whole pages apart",
    "on Zen 4 at AVX2, against panels read in place or packed before: 24 x 512 x 256 61 us become "
    "58, 48 x 512 x 256 119 become 112, 48 x 3072 x 768 3.00 ms become 2.05, 512 x 512 x 512 2.43 "
    "become 2.38; 12 x 512 x 256 is level. Copies by blocks of a part of the rows lose: 1,152 x "
    "256 x 1,568 takes 9.6 ms, 9.1 packed before")
PACK_ROWS_BLOCK_PAGES = row(
    "PACK_ROWS_BLOCK_PAGES", 8, "rows",
    "the same where rows of the right operand are whole pages apart",
    "on Zen 4 at AVX2, 8 x 3072 x 768 653 us become 491, 8 x 2048 x 512 287 become 201, 16 x 1024 "
    "x 1024 523 become 354")
PACK_BATCH_SHARE = row(
    "PACK_BATCH_SHARE", 1 / 8, "share of the cache",
    "the smallest matrices of a batch, in L2 caches, whose panels the first tile of a block copies",
    "on Zen 4 at AVX2, 36 matrices, m x n x k: 64 x 64 x 1568 6.50 ms become 4.83, 128 x 512 x 256 "
    "14.8 become 11.3, 256 x 256 x 128 6.34 become 5.99; 196 x 128 x 128 2.16 become 2.48")
PACK_OVERFLOW = row(
    "PACK_OVERFLOW", 96, "rows",
    "a panel is packed from this product of rows and overflows of the cache on, if a vector is a "
    "cache line; wider vectors miss less often",
    "on Zen 3 packing wins for 32 rows of 512 x 512 and 16 of 1024 x 1024, and loses for 16 of "
    "512 x 512; on Zen 5 with 784 x 512 it wins from 64 rows on at AVX2, and is level from 128 on "
    "at AVX-512")
PACK_ROWS_PAGES = row(
    "PACK_ROWS_PAGES", 24, "rows",
    "the fewest rows for which a right operand with a row stride of a multiple of PAGE_BYTES is "
    "packed",
    "on Zen 3, 24 x 64 x 1024: 53 GFLOP/s become 66; 1024 x 64 x 1024: 58 become 93")
PACK_DEPTH_PAGES = row(
    "PACK_DEPTH_PAGES", 32, "steps along k",
    "the least k of a product whose right operand is packed for its row stride",
    "on Zen 3, 100 x 32 x 1024: 53 GFLOP/s become 71")
NARROW_ROWS = row(
    "NARROW_ROWS", 2, "rows",
    "the most rows for which a product is limited by reading its weights, and reads them in 16 "
    "bits if mixed precision allows it", CHOSEN)
SHARED_HEAD_ROWS = row(
    "SHARED_HEAD_ROWS", 16, "rows",
    "the most queries of all heads that share a head of keys for which they are one product",
    CHOSEN)
SUMMED_ROWS = row(
    "SUMMED_ROWS", 4, "rows",
    "the most rows for which a product with a transposed matrix larger than the L2 cache is a sum "
    "along the rows of that matrix, without a copy",
    "Zen 4, AVX-512, 2 to 4 rows with 64 matrices of 512 x 64: 1590, 1510, 715 us become 320, 560, "
    "615; 8 matrices of 127 x 33, in L1, are slower")
WINDOW_ROWS = row(
    "WINDOW_ROWS", 6, "rows",
    "the fewest rows of a tile for which windows of an image are read in place, without a copy",
    CHOSEN)
PLANES_MAX = row(
    "PLANES_MAX", 4, "channels",
    "the most channels of an image that a product reads as separate planes, in place",
    "on Zen 5 a border around 3 of 224 x 224 takes 10 us, 110 where they are transposed")
COPY_COLUMNS = row(
    "COPY_COLUMNS", 64, "columns",
    "the fewest columns of a product for which a left operand with distant elements is copied",
    "on Zen 3, 128 x 2048 x 512 with the left operand transposed: 54 GFLOP/s become 88")
COPY_GAIN = row(
    "COPY_GAIN", 0.95, "ratio",
    "windows are copied if the estimated time with the copy is below this share of the time in "
    "place",
    "Zen 5, AVX2: 7 x 7 x 512 2.5 to 2.0 ms; Zen 4, AVX2, with gradients: 28 x 28 x 128 18.7 to "
    "17.1, 14 x 14 x 256 20.5 to 19.2")
COPY_SHARE = row(
    "COPY_SHARE", 0.25, "share of the cache",
    "how much of the L3 cache a copy of windows may fill; a larger one is read from memory",
    "on Zen 4 at AVX-512, 28 x 28 x 128 with gradients takes 15.4 ms in place, 17.1 with a copy of "
    "14 MB")
PRODUCT_DEPTH = row(
    "PRODUCT_DEPTH", 2048, "steps along k",
    "the k of each part of a product of large k, which fits the caches",
    "on Zen 3, 256 x 16384 x 768: 50 GFLOP/s become 87; 576 x 12544 x 64: 61 become 72")
LOOP_DEPTH = row(
    "LOOP_DEPTH", 512, "steps along k",
    "the k of each block if a loop sums a product of large k",
    "on Zen 5, against 2048: 256 x 16384 x 768 184 to 222 GFLOP/s, 128 x 2048 x 512 194 to 209")
LOOP_LINES_SHARE = row(
    "LOOP_LINES_SHARE", 7 / 16, "share of the cache",
    "how much of the L1 cache the lines of A in a block of such a loop may fill, if a vector is "
    "shorter than a line; the panel of B fills as much, and tiles return to both",
    "on Zen 4 at AVX2, k of 25,088, 64 x 256, of the peak with the next block prefetched: 196 "
    "steps 92 %, 256 89 %, 512 88 %")
LOOP_PARTS = row(
    "LOOP_PARTS", 4, "times LOOP_DEPTH, rows and columns",
    "the least k of a smaller product that is also summed by a loop; if its right operand is the "
    "stack of a loop, the least ratio of k (m + n) to 2 m n",
    "on Zen 5 1024 x 2048 x 1024 takes longer in parts: 241 to 235 GFLOP/s; training a GRU over 40 "
    "steps of 32 rows, 128 wide, takes 6.5 ms in place of 6.8 (Zen 4)")
DEEP_PRODUCT_SIZE = row(
    "DEEP_PRODUCT_SIZE", 64, "rows and columns",
    "the least size of a product that is cut along k", CHOSEN)
EVEN_PARTS = row(
    "EVEN_PARTS", 2, "times the parts",
    "the factor by which the number of parts may grow to make all parts equal", CHOSEN)
