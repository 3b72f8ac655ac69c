"""Grids: elementwise work and reductions by workgroups of threads."""

from __future__ import annotations

from ztorch.lower.tuning.table import CHOSEN, row

GROUP_THREADS = row("GROUP_THREADS", 256, "threads", "the usual size of a workgroup", CHOSEN)
THREAD_ELEMENTS = row(
    "THREAD_ELEMENTS", 4, "elements",
    "elements of a reduction that a thread adds up before another thread joins in", CHOSEN)
THREAD_ELEMENTS_FEW = row(
    "THREAD_ELEMENTS_FEW", 2, "elements",
    "the same if there are too few results to occupy the machine", CHOSEN)
COLUMN_ELEMENTS = row(
    "COLUMN_ELEMENTS", 64, "elements",
    "the same if results occupy the machine and neighbouring elements belong to different results",
    "predicted for an H200: the gradient of a pooling of 3 x 3 takes half the time of four "
    "threads for a result")
COLUMN_NEIGHBOURS = row(
    "COLUMN_NEIGHBOURS", 32, "elements",
    "elements that neighbouring threads read together",
    "chosen: 32 elements of 4 bytes are the 128 bytes that a GPU loads at once")
HELD_ELEMENTS = row(
    "HELD_ELEMENTS", 32, "elements",
    "the most elements of a row that a thread holds in registers for several passes",
    "chosen: with the values made of them, half of the registers")
REDUCTION_LOADS = row(
    "REDUCTION_LOADS", (9, 8, 4, 3, 2, 1), "loads",
    "loads that a thread of a reduction starts in one turn of its loop: the first that divides "
    "its share", CHOSEN)
REDUCTION_GROUPS = row(
    "REDUCTION_GROUPS", 2, "workgroups",
    "the most workgroups for each compute unit in the first step of a reduction in two steps",
    CHOSEN)
REDUCTION_PART_COLUMNS = row(
    "REDUCTION_PART_COLUMNS", 128, "elements",
    "the least part of such a reduction if neighbouring elements belong to different results",
    "chosen: 16 loads of each of 8 threads, which take longer than a launch")
REDUCTION_PART_ROWS = row(
    "REDUCTION_PART_ROWS", 8192, "elements",
    "the same if neighbours belong to one result",
    "chosen: 8 loads of 4 elements of each of 256 threads")
GRID_WIDE_BYTES = row(
    "GRID_WIDE_BYTES", 1 << 33, "bytes",
    "the size of all wide values of one shape from which a grid computes them in blocks of rows: "
    "they would not fit its memory", CHOSEN)
GRID_BLOCK_BYTES = row("GRID_BLOCK_BYTES", 1 << 28, "bytes", "the size of such a block", CHOSEN)
