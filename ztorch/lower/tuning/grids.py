"""Grids: elementwise work and reductions by workgroups of threads."""

from __future__ import annotations

from ztorch.lower.tuning.table import CHOSEN, row

GROUP_THREADS = row("GROUP_THREADS", 256, "threads", "the usual size of a workgroup", CHOSEN)
JOINED_GROUPS = row(
    "JOINED_GROUPS", 2, "workgroups",
    "the most workgroups for each compute unit of a kernel that shares a launch with others of any "
    "kind",
    "chosen: so many reside on a compute unit whatever registers and shared memory the others need")
JOINED_INSTRUCTIONS = row(
    "JOINED_INSTRUCTIONS", 8192, "instructions",
    "the most instructions of kernels that share a launch",
    "chosen: assemblers take about a second for twice as many")
SHORT_BYTES = row(
    "SHORT_BYTES", 4, "bytes",
    "elements shorter than this are stored several at once, even if they are loaded one by one",
    "predicted for an H200: 4,096 x 30,522 of 16 bits with longer rows take 116 us for 209, "
    "the windows of 7 x 7 x 3 of 64 images 173 for 365")
THREAD_ELEMENTS = row(
    "THREAD_ELEMENTS", 4, "elements",
    "elements of a reduction per thread, below which no further thread is added", CHOSEN)
THREAD_ELEMENTS_FEW = row(
    "THREAD_ELEMENTS_FEW", 2, "elements",
    "the same if there are too few results to occupy the machine", CHOSEN)
COLUMN_ELEMENTS = row(
    "COLUMN_ELEMENTS", 64, "elements",
    "the same if results occupy the machine and neighboring elements belong to different results",
    "predicted for an H200: the gradient of a pooling of 3 x 3 takes half the time of four "
    "threads for a result")
COLUMN_NEIGHBORS = row(
    "COLUMN_NEIGHBORS", 32, "elements",
    "elements that neighboring threads read together",
    "chosen: 32 elements of 4 bytes are the 128 bytes that a GPU loads at once")
COLUMN_SECTOR = row(
    "COLUMN_SECTOR", 8, "elements",
    "the same in long sums of few columns, which need many threads for each",
    "chosen: 32 bytes, the least that a GPU loads from memory; predicted for an H200: sums of 784 "
    "rows of 64 columns take 2 us, not 12.6")
COLUMN_LONG = row(
    "COLUMN_LONG", 256, "elements", "the columns that are longer than this are such", CHOSEN)
THREAD_REGISTERS = row(
    "THREAD_REGISTERS", 128, "registers",
    "registers of a thread if as many threads as usual share a compute unit",
    "public figures: a unit of NVIDIA's has 65,536 for 512 such threads")
THREAD_REGISTERS_MOST = row(
    "THREAD_REGISTERS_MOST", 255, "registers",
    "the most registers of a thread", "public figures: an instruction names no more")
HELD_REGISTERS = row(
    "HELD_REGISTERS", 32, "registers",
    "the most registers in which a thread holds its part of a row for several passes",
    "chosen: a fourth, since loads in flight and results take as many")
HELD_OTHERS = row(
    "HELD_OTHERS", 80, "registers",
    "registers of a thread beside those that hold a row, if its workgroup is alone on a compute "
    "unit",
    "read in machine code: losses over 24,576 classes spill nothing on any chip")
HELD_MOST = row(
    "HELD_MOST", 112, "registers",
    "the most registers in which a thread of such a workgroup holds its part of a row",
    "read in machine code: losses over 32,000 classes spill 40 to 88 bytes with 125")
HELD_LONG_THREADS = row(
    "HELD_LONG_THREADS", (512, 256), "threads",
    "the sizes of workgroups that are tried for rows that a usual workgroup cannot hold",
    "chosen: alone on a compute unit, their threads have 128 and 255 registers")
REDUCTION_LOADS = row(
    "REDUCTION_LOADS", (9, 8, 4, 3, 2, 1), "loads",
    "loads that a thread of a reduction starts in one iteration of its loop: the first that "
    "divides its share", CHOSEN)
REDUCTION_LOADS_UNEVEN = row(
    "REDUCTION_LOADS_UNEVEN", 8, "loads",
    "the same if none divides it and it is at least twice as long",
    "measured on an H200: rows of 30,522 with one load per iteration took twice the time of a copy")
REDUCTION_GROUPS = row(
    "REDUCTION_GROUPS", 2, "workgroups",
    "the most workgroups for each compute unit in the first step of a reduction in two steps",
    CHOSEN)
REDUCTION_PART_COLUMNS = row(
    "REDUCTION_PART_COLUMNS", 128, "elements",
    "the least part of a two-step reduction if neighboring elements belong to different results",
    "chosen: 16 loads of each of 8 threads, which take longer than a launch")
REDUCTION_PART_ROWS = row(
    "REDUCTION_PART_ROWS", 8192, "elements",
    "the same if neighbors belong to one result",
    "chosen: 8 loads of 4 elements of each of 256 threads")
GRID_WIDE_BYTES = row(
    "GRID_WIDE_BYTES", 1 << 33, "bytes",
    "the total size of large intermediates from which a grid computes them in blocks of rows: they "
    "would not fit in its memory", CHOSEN)
GRID_BLOCK_BYTES = row("GRID_BLOCK_BYTES", 1 << 28, "bytes", "the size of such a block", CHOSEN)
REMATERIALIZE_BYTES = row(
    "REMATERIALIZE_BYTES", 1 << 20, "bytes",
    "the least size of a value that its readers rematerialize",
    "chosen: smaller values stay in caches")
REMATERIALIZE_FEW = row(
    "REMATERIALIZE_FEW", 16, "ratio",
    "operands that are smaller than the value by this factor are not counted", CHOSEN)
REMATERIALIZE_SLOTS = row(
    "REMATERIALIZE_SLOTS", 6, "issue slots",
    "the most that rematerialization may spend per saved byte of memory traffic",
    "figures of an H200: it issues 7 instructions in the time in which memory transfers a byte")
REMATERIALIZE_CORE_SLOTS = row(
    "REMATERIALIZE_CORE_SLOTS", 2, "issue slots",
    "the same on a processor, counted for each lane",
    "Zen 4 issues 32 lanes in a cycle, in which 16 bytes come from beyond the L2 cache. Batch "
    "normalization of 8 x 28 x 28 x 128 with gradients takes 0.6 of the time")
COLUMN_SUMS_BYTES = row(
    "COLUMN_SUMS_BYTES", 1 << 20, "bytes",
    "the least size of a product whose epilogue sums columns",
    "chosen: smaller results stay in caches, for the kernel that would sum them")
COLUMN_SUMS_READS = row(
    "COLUMN_SUMS_READS", 4, "arrays",
    "the most arrays as large as the product that its epilogue reads if it sums columns",
    "predicted for an H200: a step of resnet18 takes 3.14 ms, and 3.20 with two")
COLUMN_SUMS_SLOTS = row(
    "COLUMN_SUMS_SLOTS", 24, "issue slots",
    "the most that this epilogue spends on an element, apart from the sums", CHOSEN)
EPILOGUE_BYTES = row(
    "EPILOGUE_BYTES", 1 << 20, "bytes",
    "the least size of a product whose epilogue may become a separate kernel",
    "chosen: for smaller products, a launch takes longer")
EPILOGUE_READS = row(
    "EPILOGUE_READS", 1, "arrays",
    "the most arrays as large as the product that its epilogue reads",
    "measured on an H200: a gradient of 768 x 3072 and Adam take 71 us as one kernel, of which the "
    "product needs 36 and the bytes 18")
EPILOGUE_SLOTS = row(
    "EPILOGUE_SLOTS", 24, "issue slots",
    "the most that the epilogue spends on an element",
    "measured on an H200: a product of 4096 x 3072 x 768 and the gradient of gelu take 108 us as "
    "one kernel, of which the product needs 22 and the bytes 17")
ASYNC_LINES = row(
    "ASYNC_LINES", 4, "lines",
    "lines of a finished tile whose elements a thread loads before it stores any, so that it waits "
    "for memory once",
    "predicted for an H200: 4096 x 3072 x 768 with the gradient of gelu takes 31 us for 50, and "
    "4096 x 30522 x 768 238 for 292")
