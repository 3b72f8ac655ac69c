"""Grids: matrix products and convolutions."""

from __future__ import annotations

from ztorch.lower.tuning.table import CHOSEN, row

# -- products by threads ---------------------------------------------------------------------------

GRID_TILES = row(
    "GRID_TILES", (
        (128, 128, 8, 8, 8), (64, 128, 8, 8, 8), (128, 64, 8, 8, 8), (64, 64, 8, 8, 8),
        (128, 64, 16, 8, 4), (64, 128, 16, 4, 8), (64, 64, 16, 8, 4), (64, 64, 16, 4, 4),
        (32, 64, 16, 2, 4), (64, 32, 16, 4, 2), (32, 32, 16, 2, 2), (16, 64, 16, 1, 4),
        (16, 32, 16, 1, 2), (16, 16, 16, 1, 1), (8, 16, 16, 1, 1), (8, 8, 8, 1, 1)),
    "rows, columns, depth of a strip; rows and columns of one thread",
    "the tiles that are tried for a product by threads", CHOSEN)
READ_COST = row(
    "READ_COST", (0.25, 2.0), "multiply-adds",
    "the time of a thread's load of an element from shared memory: to start instructions, and of "
    "shared memory",
    "fitted to the predictions of convolutions on an H200, which it repeats within 3 %")
STRIP_COST = row(
    "STRIP_COST", (3.4, 20.0), "multiply-adds",
    "the time to copy an element of a strip, likewise",
    "fitted to the same predictions")
STRIP_WAIT = row(
    "STRIP_WAIT", (480, 200), "cycles",
    "the time for which a lone tile waits for a strip, and that from its last product of one to "
    "the first of the next",
    "read from the predictions of 1000 x 1000 x 100 and 2 x 1024 x 1024 on an H200")
SCHEDULED_THREADS = row(
    "SCHEDULED_THREADS", 128, "threads",
    "a subgroup for each scheduler of a compute unit, the busiest of which has one more where they "
    "are no multiple", CHOSEN)
GRID_TILE_START = row(
    "GRID_TILE_START", 32, "steps along k", "the time to begin and finish a tile", CHOSEN)
STRIP_PADDING = row(
    "STRIP_PADDING", 4, "elements",
    "padding of each row of a strip, a multiple of every vector: without it, threads that store "
    "down a strip have bank conflicts", CHOSEN)
THREAD_UNROLL = row(
    "THREAD_UNROLL", 8, "steps along k",
    "steps in one iteration of the inner loop: one is loaded while another is multiplied",
    "read in Hopper's machine code: 90 % of instructions multiply, 86 % with 2 steps")
TEAMS_MOST = row(
    "TEAMS_MOST", 8, "groups of threads",
    "the most teams that divide the depth of a strip if a product has fewer tiles than the machine "
    "has compute units",
    "predicted for an H200, whose other times it predicts within a tenth: 32 x 128 with k of 784 "
    "takes 0.4 of the time of one")
TEAMS_THREADS = row(
    "TEAMS_THREADS", 256, "threads",
    "the most threads of all teams of a workgroup: as many as the largest tile has", CHOSEN)
TEAM_DEPTH = row(
    "TEAM_DEPTH", 16, "steps along k", "the part of a strip that each team multiplies", CHOSEN)
SPLIT_DEPTH_THREADS = row(
    "SPLIT_DEPTH_THREADS", 96, "steps along k", "SPLIT_DEPTH of products by threads",
    "predicted for an H200: 8 x 1024 x 1024 takes 10.6 us in 8 parts, 12.6 in 4")
SPLIT_START = row(
    "SPLIT_START", 1 << 18, "multiply-adds of a compute unit",
    "the time between parts and their sum: a microsecond of an H200", CHOSEN)
FEW_ROWS_TILES = row(
    "FEW_ROWS_TILES", (
        (4, 128, 16, 4, 4), (8, 128, 16, 8, 4), (16, 128, 16, 8, 4), (32, 128, 16, 8, 8),
        (64, 128, 16, 8, 8)),
    "rows, columns, depth of a strip; rows and columns of one thread",
    "the tiles for so few rows; the smallest one that holds all rows is tried, too",
    "predicted for an H200: tiles of 64 columns take 1.2 times as long, of 32 1.6 times")
SPLIT_DEPTH = row(
    "SPLIT_DEPTH", 256, "steps along k",
    "the least depth of each part where a product is split along k", CHOSEN)
SPLIT_DEPTH_LARGE = row(
    "SPLIT_DEPTH_LARGE", 1024, "steps along k",
    "the same for asynchronous products of 16 bits",
    "chosen: adding up parts takes as long as a tenth of that")
SPLIT_DEEP = row(
    "SPLIT_DEEP", 1 << 14, "steps along k",
    "the depth from which a product is split along k, even if it has many tiles", CHOSEN)
SPLIT_SHARE = row(
    "SPLIT_SHARE", 0.25, "share of the compute units",
    "the most that the tiles of a less deep product may occupy for it to be split",
    "measured on an H200: in four parts, 768 x 768 x 4096 takes 20 us for 29; in two, "
    "256 x 8192 x 4096 takes 38 us for 31")
SPLIT_GROUPS = row(
    "SPLIT_GROUPS", 4, "workgroups",
    "the most workgroups for each compute unit after a split, where tiles are small",
    "measured on an H200: a gradient of 147 x 64 with k of 802,816 on 96 workgroups took four "
    "times as long as its bytes; predicted for threads on float32: with one, 1152 x 128 x 50,176 "
    "takes 659 us for 264")
SPLIT_GAIN = row(
    "SPLIT_GAIN", 1.3, "times as fast",
    "how much products of 16 bits by subgroups must gain to be split otherwise than usual",
    "predicted: with 1.2, 1024 x 512 x 2048 takes 29 us for 24 on an A40, and with 1.3 768 x 768 x "
    "4096 takes 27 us for 42 on an A100")
SPLIT_WAIT = row(
    "SPLIT_WAIT", 0.45, "share of the latency of a copy",
    "what products of few rows by subgroups wait for a strip, if their tiles occupy most units",
    "predicted for an A100: 32 x 4096 x 4096 takes 21.4 us whole, 29.1 in two parts, and 64 x 4096 "
    "x 11008 63.8 whole, 56.8 in four")
SPLIT_TILE = row(
    "SPLIT_TILE", 64, "rows and columns",
    "the size of the tiles that are counted to decide whether k must be split", CHOSEN)
COPY_BYTES = row(
    "COPY_BYTES", (16, 8), "bytes",
    "sizes of one asynchronous copy, the best first",
    "chosen: the widest load of GPUs, and half of it")
PITCH_REUSE = row(
    "PITCH_REUSE", 512, "products",
    "the multiply-adds per element from which padding rows, for the alignment that tile copies "
    "need, pays for its copy",
    "public figures of an H200: a copy takes as long as 460 multiply-adds of an element; without "
    "it products take four times as long")

PIXEL_DEPTH = row(
    "PIXEL_DEPTH", 2.0, "ratio",
    "how much deeper windows of wider pixels may be than those of the image", CHOSEN)
PIXEL_GAIN = row(
    "PIXEL_GAIN", 2.0, "ratio",
    "how many more elements windows must have than their image with wider pixels", CHOSEN)
SPLIT_FLOATS_GAIN = row(
    "SPLIT_FLOATS_GAIN", 1.5, "ratio",
    "how much faster three products of parts of float32 must be than one by threads",
    "chosen: making the parts takes up to a quarter of the time")
SPLIT_FLOATS_LEAST = row(
    "SPLIT_FLOATS_LEAST", 2048, "rows and columns",
    "the least size of a product of parts of float32 that are written to memory",
    "predicted for an H200: 2048 x 2048 x 2048 takes 150 us for 172 with parts made as they are "
    "loaded, and 1024 x 1024 x 1024 34 for 22")

# -- matrix instructions ---------------------------------------------------------------------------

MMA_TILES = row(
    "MMA_TILES", (
        (256, 128, 4, 2), (128, 256, 2, 4), (256, 64, 4, 1), (192, 64, 4, 1), (128, 128, 2, 4),
        (64, 128, 2, 4), (128, 64, 4, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2),
        (32, 64, 1, 4), (64, 32, 4, 1), (32, 32, 2, 2), (16, 64, 1, 4), (64, 16, 4, 1),
        (16, 16, 1, 2), (16, 16, 1, 1)),
    "rows, columns; subgroups down and across",
    "the tiles that are tried with matrix instructions", CHOSEN)
MMA_NARROW_COST = row(
    "MMA_NARROW_COST", 1 / 8, "multiply-adds of a thread",
    "the time of one multiply-add of a matrix instruction on operands of 16 bits, or rounded ones",
    CHOSEN)
MMA_WIDE_COST = row(
    "MMA_WIDE_COST", 1 / 2, "multiply-adds of a thread",
    "the same on operands that keep all bits", CHOSEN)
MMA_SPLIT_COST = row(
    "MMA_SPLIT_COST", 0.04, "cycles of a compute unit",
    "the time to split a loaded float32 into parts, beside the products that hide half of it",
    "read in the template: five instructions of integers, of which units start 64 in a cycle")
MMA_STRIP_COST = row(
    "MMA_STRIP_COST", 6.0, "multiply-adds of a thread",
    "the time to copy one element of a strip", CHOSEN)
MMA_DEPTH = row("MMA_DEPTH", 16, "steps along k", "the least depth of a strip", CHOSEN)
MMA_DEPTH_PRODUCTS = row(
    "MMA_DEPTH_PRODUCTS", 2, "matrix instructions",
    "the fewest along the depth of a strip", CHOSEN)
MMA_REGISTERS = row(
    "MMA_REGISTERS", 80, "registers",
    "the most registers of 32 bits in which a thread may hold sums and loaded parts of strips",
    "read in machine code: of 128 registers that GPUs leave a thread, the other 48 hold addresses "
    "and operands; with 96 there are spills")
LOAD_REGISTERS = row(
    "LOAD_REGISTERS", 4, "registers",
    "those of a load of few elements, beside theirs: their place, and whether they are inside",
    "read in machine code: with 3, 4099 x 1030 x 77 spills on sm_75")
MMA_FINISH_PASSES = row(
    "MMA_FINISH_PASSES", 3, "passes",
    "a finished tile is stored to shared memory, loaded, and stored",
    "derived from the model of banks: there are no conflicts")
MMA_ALONE = row(
    "MMA_ALONE", 0.7, "share",
    "how much the time of the busiest unit counts, beside that of all on average",
    "predicted for an A100: with 1, a step of bert_base takes 18.1 ms for 17.6")
MMA_LARGER_GAIN = row(
    "MMA_LARGER_GAIN", 0.95, "ratio",
    "the time of a tile in stages to that of a larger one, below which it is chosen", CHOSEN)
MMA_STAGED_SUMS = row(
    "MMA_STAGED_SUMS", 128, "registers",
    "the most registers of a thread for sums where copies to shared memory pass no registers; half "
    "as many threads then have twice as many registers",
    "read in machine code: 186 to 255 registers on sm_80, sm_90 and sm_100, none spilled; "
    "predicted for an A100: 4096 x 4096 x 4096 takes 466 us for 598")
MMA_STAGED_RATE = row(
    "MMA_STAGED_RATE", 800, "multiply-adds of a compute unit in a cycle",
    "the rate of matrix instructions from which on shared memory limits smaller sums",
    "predicted: with 1024, sums of 128 registers take 0.7 to 0.8 of the time of 64; an RTX 4090, "
    "with 256, takes 1.14 times as long for a convolution of 56 x 56 x 64")
MMA_SUM_SHARE = row(
    "MMA_SUM_SHARE", 0.5, "share of the registers",
    "how many of a thread's registers may hold the sums of matrix instructions", CHOSEN)
MMA_STAGES = row(
    "MMA_STAGES", 4, "stages",
    "the most stages of strips; all but one of them are being copied at once", CHOSEN)
MMA_PADDING = row(
    "MMA_PADDING", 8, "elements",
    "padding of each row of a strip: threads that load together use different banks of memory",
    CHOSEN)
MMA_ALIGN_BYTES = row(
    "MMA_ALIGN_BYTES", 16, "bytes",
    "the alignment of rows of matrices",
    "required by the instructions that load matrices")

# -- asynchronous products, and workgroups with a subgroup that only copies ------------------------

ASYNC_TILES = row(
    "ASYNC_TILES", ((128, 256), (128, 192), (128, 128), (64, 256), (64, 192), (64, 128), (128, 64),
                    (64, 64)),
    "rows, columns",
    "the tiles that are tried with asynchronous products",
    "public figures: large products on Hopper reach the vendor's speed with 128 x 256; predicted: "
    "3072 x 768 x 4096 takes 28 us for 37 in tiles of 192 columns")
ASYNC_COST = row(
    "ASYNC_COST", 1 / 12, "multiply-adds of a thread",
    "the time of one multiply-add of an asynchronous product",
    "public figures: instructions that wait reach 60 to 65 % of its rate on Hopper")
ASYNC_STAGES_LEAST = row(
    "ASYNC_STAGES_LEAST", 3, "stages",
    "the fewest stages of strips: products read two, and copies fill the others",
    "chosen: with fewer, copies would wait for products")
ROLES_FEW_STRIPS = row(
    "ROLES_FEW_STRIPS", 16, "strips",
    "the most strips of a tile for which the time to finish it counts more than further stages",
    "predicted for an H200: 4096 x 3072 x 768, which has 12, takes 24.2 us in two bands, 25.7 in "
    "four and another stage")
ROLES_STAGES_ENOUGH = row(
    "ROLES_STAGES_ENOUGH", 3, "stages", "the fewest stages where bands come first",
    "figures of an H200: a strip of 128 x 256 is multiplied in the time of a copy's latency")
ROLES_STAGES_LEAST = row(
    "ROLES_STAGES_LEAST", 2, "stages",
    "the fewest stages of a ring: products read one, and copies fill the others", CHOSEN)
ROLES_STAGES_MOST = row("ROLES_STAGES_MOST", 8, "stages", "the most stages of a ring", CHOSEN)
CLUSTERS = row(
    "CLUSTERS", ((4, 1), (2, 2), (2, 1)), "workgroups below and beside one another",
    "the clusters that share strips of products, the first of those that read the same bytes",
    "predicted: clusters of 4 read three quarters of the bytes of clusters of 2 from the shared "
    "cache, and with tiles of 192 columns 2 x 2 nine tenths of 4 x 1; not measured")
GPC_UNITS = row(
    "GPC_UNITS", 16, "units",
    "the units of each part of a Hopper, at least; a cluster is in one part",
    "public figures: parts of an H100 have 16 or 18 units")
RASTER_ROWS = row(
    "RASTER_ROWS", 8, "tiles",
    "the most tiles of a column that workgroups compute before the next column of tiles",
    "public figures: on Hopper 8 and 16 differ by a few percent")
STREAM_STRIPS = row(
    "STREAM_STRIPS", 4, "strips",
    "the fewest of a workgroup's share of tiles that rules propose",
    "chosen: a part of a tile takes as long to hand over as two strips of it")
STREAM_SIGNAL = row(
    "STREAM_SIGNAL", 1500, "cycles",
    "until a workgroup has seen the signal of another one and loads its part",
    "as in machines/gpus.py: 1000, a guess, and the latency of a load")
STREAM_GAPS = row(
    "STREAM_GAPS", 2000, "cycles",
    "by which the gaps before and behind a launch are longer whose workgroups signal",
    "as in machines/gpus.py: neither that launch nor the next one starts early")
STREAM_GAIN = row(
    "STREAM_GAIN", 0.05, "share of the time", "what shared tiles must gain at least",
    "predicted for an H200: what is chosen so takes 0.62 to 0.90 of the time")
PRODUCER_REGISTERS = row(
    "PRODUCER_REGISTERS", 40, "registers",
    "registers of a thread that only copies",
    "public figures: 24 to 40")
CONSUMER_REGISTERS = row(
    "CONSUMER_REGISTERS", 26, "registers",
    "registers of a thread that multiplies, besides its sums",
    "read in machine code: 154 with sums of 128")

PARTS_REGISTERS = row(
    "PARTS_REGISTERS", 48, "registers",
    "the same for the parts of left operands that it holds",
    "read in machine code: 138 with sums of 64")
PARTS_HELD = row(
    "PARTS_HELD", 4, "matrices", "the left operands in parts that are in registers at once",
    CHOSEN)

# -- convolutions by copies of boxes ---------------------------------------------------------------

WINDOW_ROWS_TRIED = row(
    "WINDOW_ROWS_TRIED", (256, 192, 128, 64), "rows", "the rows of a tile that are tried", CHOSEN)
WINDOW_COLUMNS = row(
    "WINDOW_COLUMNS", (256, 192, 128, 64), "columns",
    "the columns of a tile that are tried", CHOSEN)
WINDOW_DEPTHS = row(
    "WINDOW_DEPTHS", (32, 256), "positions",
    "the least and the greatest depth of a strip of positions", CHOSEN)
WINDOW_PASSES = row(
    "WINDOW_PASSES", 2, "passes",
    "passes through shared memory that it takes to store a finished tile there and load it",
    "derived from the model of banks: pairs of numbers are stored without conflicts")
WINDOW_FINISH_SHARE = row(
    "WINDOW_FINISH_SHARE", 0.5, "share of the time",
    "the part of a tile's epilogue that does not overlap with copies for the next tile", CHOSEN)
WINDOW_STRIP_LINES = row(
    "WINDOW_STRIP_LINES", 16, "lines", "the time to begin and end a strip", CHOSEN)
WINDOW_UNITS = row(
    "WINDOW_UNITS", 0.5, "share of the compute units",
    "the least share that the tiles of a convolution must occupy; otherwise k is split", CHOSEN)
