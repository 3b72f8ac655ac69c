"""The tuned constants of grids: rows of the table in `tuning.py`."""

from __future__ import annotations

from ztorch.lower.tuning import CHOSEN, row

GROUP_THREADS = row(
    "GROUP_THREADS", 256, "threads", "of a workgroup, where nothing asks for another number",
    CHOSEN)
THREAD_ELEMENTS = row(
    "THREAD_ELEMENTS", 4, "elements", "that a thread adds up before another thread joins it",
    CHOSEN)
THREAD_ELEMENTS_FEW = row(
    "THREAD_ELEMENTS_FEW", 2, "elements", "the same where there are too few results to occupy the "
    "machine", CHOSEN)
COLUMN_ELEMENTS = row(
    "COLUMN_ELEMENTS", 64, "elements", "the same where results occupy the machine and neighbours "
    "belong to different ones", "predicted for an H200: the gradient of a pooling of 3 x 3 takes "
    "half the time of four threads for a result")
HELD_ELEMENTS = row(
    "HELD_ELEMENTS", 32, "elements", "of a row that a thread holds in registers at most, where "
    "several passes look at it", "chosen: with what is made of them, half of the registers")
COLUMN_NEIGHBOURS = row(
    "COLUMN_NEIGHBOURS", 32, "elements", "that neighbouring threads read together",
    "chosen: 32 elements of 4 bytes are the 128 bytes that a GPU loads at once")
REDUCTION_GROUPS = row(
    "REDUCTION_GROUPS", 2, "workgroups", "for each compute unit that the first step of a reduction "
    "in two steps has at most", CHOSEN)
REDUCTION_PART_COLUMNS = row(
    "REDUCTION_PART_COLUMNS", 128, "elements", "of one part of a reduction in two steps at least, "
    "where neighbours belong to different results",
    "chosen: 16 loads of each of 8 threads, which take longer than a launch")
REDUCTION_PART_ROWS = row(
    "REDUCTION_PART_ROWS", 8192, "elements", "the same where neighbours belong to one result",
    "chosen: 8 loads of 4 elements of each of 256 threads")
SHARED_LOAD_COST = row(
    "SHARED_LOAD_COST", 1.5, "multiply-adds", "that a load from shared memory takes the time of",
    CHOSEN)
GRID_TILE_START = row(
    "GRID_TILE_START", 32, "steps along k", "that beginning and finishing a tile take the time of",
    CHOSEN)
STRIP_PADDING = row(
    "STRIP_PADDING", 4, "elements", "added to each row of a strip: threads that store down it "
    "would wait for one bank of memory otherwise; a multiple of each vector", CHOSEN)
THREAD_UNROLL = row(
    "THREAD_UNROLL", 2, "steps along k", "that the inner loop of a product has in one turn, so "
    "that loads of one are on their way while another is multiplied", CHOSEN)
MMA_NARROW_COST = row(
    "MMA_NARROW_COST", 1 / 8, "multiply-adds of a thread", "that one of a matrix instruction on "
    "operands of 16 bits, or rounded ones, takes the time of", CHOSEN)
MMA_WIDE_COST = row(
    "MMA_WIDE_COST", 1 / 2, "multiply-adds of a thread", "the same on operands that keep all bits",
    CHOSEN)
MMA_STRIP_COST = row(
    "MMA_STRIP_COST", 6.0, "multiply-adds of a thread", "that bringing one element of a strip "
    "takes the time of", CHOSEN)
MMA_DEPTH = row(
    "MMA_DEPTH", 16, "steps along k", "of a strip at least", CHOSEN)
MMA_DEPTH_PRODUCTS = row(
    "MMA_DEPTH_PRODUCTS", 2, "matrix instructions", "along k of a strip at least", CHOSEN)
MMA_REGISTERS = row(
    "MMA_REGISTERS", 80, "registers", "of 32 bits that a thread may hold sums and loaded parts of "
    "strips in", "read in machine code: of 128 registers that GPUs leave a thread, the other 48 "
    "hold addresses and operands; with 96 there are spills")
MMA_STAGES = row(
    "MMA_STAGES", 4, "stages", "of strips at most, copies to all but one of which are on their way "
    "at once", CHOSEN)
MMA_PADDING = row(
    "MMA_PADDING", 8, "elements", "added to each row of a strip, so that threads that load "
    "together find different banks of memory", CHOSEN)
MMA_ALIGN_BYTES = row(
    "MMA_ALIGN_BYTES", 16, "bytes", "that rows of matrices are aligned to", "what the instructions "
    "that load matrices ask for")
ASYNC_COST = row(
    "ASYNC_COST", 1 / 12, "multiply-adds of a thread", "that one of an asynchronous product takes "
    "the time of", "public figures: instructions that wait reach 60 to 65 % of its rate on Hopper")
ASYNC_STAGES_LEAST = row(
    "ASYNC_STAGES_LEAST", 3, "stages", "of strips: products read two, and copies fill the others",
    "chosen: with fewer, copies would wait for products")

ATTENTION_ROWS = row(
    "ATTENTION_ROWS", 16, "rows", "of scores from which on one kernel computes attention: with "
    "fewer, threads share their columns", CHOSEN)
ATTENTION_SIZE = row(
    "ATTENTION_SIZE", 256, "elements", "of a query and a result together at most, which threads "
    "hold in registers", "chosen: heads of 128")
ATTENTION_THREAD = row(
    "ATTENTION_THREAD", 32, "elements", "of both that one thread holds at most, where several can "
    "share a row", "read in machine code: with 64 there are spills on chips before Hopper")
ATTENTION_BLOCK = row(
    "ATTENTION_BLOCK", 32, "columns", "of scores whose keys and values lie in shared memory at "
    "once", CHOSEN)
ATTENTION_STEP = row(
    "ATTENTION_STEP", 2, "columns", "of scores after which results are scaled anew",
    "read in machine code: with 4 there are spills on chips before Hopper")
ATTENTION_STAGES = row(
    "ATTENTION_STAGES", 2, "stages", "of such blocks: copies fill one while the other is read",
    CHOSEN)
ATTENTION_REGISTERS = row(
    "ATTENTION_REGISTERS", 208, "registers", "of 32 bits at most that matrices of a thread take",
    "read in machine code: of 255; with 216 there are spills")
ATTENTION_REGISTERS_FEW = row(
    "ATTENTION_REGISTERS_FEW", 104, "registers", "of matrices with which a thread needs no more "
    "than 128 in all", "read in machine code")
ATTENTION_PRODUCT = row(
    "ATTENTION_PRODUCT", 1.5, "turns", "of shared memory in which a compute unit multiplies two "
    "matrices", "public figures: of an H200 without asynchronous products")
ATTENTION_ISSUE = row(
    "ATTENTION_ISSUE", 0.25, "turns", "in which a compute unit starts an instruction", CHOSEN)
ATTENTION_ELEMENT = row(
    "ATTENTION_ELEMENT", 7, "instructions", "for each score", "read in machine code")
SEEN_ROWS = row(
    "SEEN_ROWS", 16, "rows", "of scores of which it is known together which columns they see",
    "chosen: a matrix of a tensor core")
ATTENTION_SHARE = row(
    "ATTENTION_SHARE", 0.5, "share of a buffer", "that scores take from which on attention is one "
    "kernel of threads", "predicted for an H200 without matrix instructions: it takes 2.5 to 5 "
    "times as long as products that keep scores in memory")
PITCH_REUSE = row(
    "PITCH_REUSE", 512, "products", "that an element is part of from which on a copy pays whose "
    "rows lie as boxes of them are copied", "public figures of an H200: a copy takes as long as "
    "460 multiply-adds of an element; without it products take four times as long")
ROLES_STAGES_LEAST = row(
    "ROLES_STAGES_LEAST", 2, "stages", "of a ring: products read one, and copies fill the others",
    CHOSEN)
ROLES_STAGES_MOST = row(
    "ROLES_STAGES_MOST", 8, "stages", "of a ring at most", CHOSEN)
RASTER_ROWS = row(
    "RASTER_ROWS", 8, "tiles", "below one another at most that workgroups take before the next "
    "column of tiles", "public figures: on Hopper 8 and 16 differ by a few percent")
PRODUCER_REGISTERS = row(
    "PRODUCER_REGISTERS", 40, "registers", "of a thread that copies", "public figures: 24 to 40")
CONSUMER_REGISTERS = row(
    "CONSUMER_REGISTERS", 24, "registers", "of a thread that multiplies, beside its sums",
    "read in machine code: 154 with sums of 128")

WINDOW_PRODUCTS = row(
    "WINDOW_PRODUCTS", 1892, "multiply-adds", "of 16 bits that a compute unit does in a cycle",
    "public figures: an H200 at its highest clock")
WINDOW_SHARED_BYTES = row(
    "WINDOW_SHARED_BYTES", 128, "bytes", "of shared memory that it moves in a cycle",
    "public figures")
WINDOW_L2_BYTES = row(
    "WINDOW_L2_BYTES", 26, "bytes", "that it gets of the shared cache in a cycle while all others "
    "do", "public figures: an H200")
WINDOW_LATENCY = row(
    "WINDOW_LATENCY", 1200, "cycles", "from the start of a copy to its arrival",
    "public figures: a load from memory takes 800 to 1,000")
WINDOW_PASSES = row(
    "WINDOW_PASSES", 3, "passes", "of shared memory that storing a finished tile there and loading "
    "it takes", "read in the model of banks: matrices are stored at half the rate")
WINDOW_STRIP_LINES = row(
    "WINDOW_STRIP_LINES", 16, "lines", "that beginning and ending a strip takes the time of",
    CHOSEN)
WINDOW_UNITS = row(
    "WINDOW_UNITS", 0.5, "of all compute units", "that tiles of a convolution occupy at least, or "
    "its steps along k are cut up instead", CHOSEN)

# Loads that a thread of a reduction starts in one turn of its loop, the most that divide its share.
REDUCTION_LOADS = (9, 8, 4, 3, 2, 1)
# What is tried of convolutions: rows and columns of a tile, and how deep a strip of positions is,
# at least and at most.
WINDOW_ROWS_TRIED = (256, 192, 128, 64)
WINDOW_COLUMNS = (256, 192, 128, 64)
WINDOW_DEPTHS = (32, 256)
# What is tried of attention by matrix instructions: subgroups of a workgroup, matrices of scores
# that one has below one another, columns of a block, and steps along queries that stay in
# registers, at most.
ATTENTION_TILES = tuple((subgroups, high, block, held) for high, block, held in (
    (2, 64, 16), (2, 64, 0), (2, 32, 16), (2, 32, 2), (2, 32, 0), (1, 64, 16), (1, 64, 0),
    (1, 32, 0)) for subgroups in (4, 8))
# Bytes of one asynchronous copy, the best first: what GPUs load at once, and half of it.
COPY_BYTES = (16, 8)
# Tiles of a product on a grid that are tried: rows, columns, depth of a strip, and the rows and
# columns of one thread. Chosen, not measured.
GRID_TILES = (
    (128, 128, 8, 8, 8), (128, 64, 8, 8, 4), (64, 128, 8, 4, 8), (64, 64, 16, 4, 4),
    (32, 64, 16, 2, 4), (64, 32, 16, 4, 2), (32, 32, 16, 2, 2), (16, 64, 16, 1, 4),
    (16, 32, 16, 1, 2), (16, 16, 16, 1, 1), (8, 16, 16, 1, 1), (8, 8, 8, 1, 1))
# The same with matrix instructions: rows, columns, subgroups down and across.
MMA_TILES = (
    (128, 128, 2, 4), (64, 128, 2, 4), (128, 64, 4, 2), (64, 64, 2, 2), (32, 64, 1, 4),
    (64, 32, 4, 1), (32, 32, 2, 2), (16, 64, 1, 4), (64, 16, 4, 1), (16, 16, 1, 2),
    (16, 16, 1, 1))
# The same with asynchronous products: rows and columns. Public figures: large products on Hopper
# reach the vendor's speed with 128 x 256.
ASYNC_TILES = ((128, 256), (128, 128), (64, 256), (64, 128), (128, 64), (64, 64))
