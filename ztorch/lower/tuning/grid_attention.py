"""Grids: attention in one kernel, by threads and by matrix instructions."""

from __future__ import annotations

from ztorch.lower.tuning.table import CHOSEN, row

ATTENTION_ROWS = row(
    "ATTENTION_ROWS", 16, "rows",
    "the fewest rows of scores for which one kernel computes attention: with fewer, threads share "
    "their columns", CHOSEN)
ATTENTION_SIZE = row(
    "ATTENTION_SIZE", 256, "elements",
    "the longest query and result together, which threads hold in registers",
    "chosen: heads of 128")
ATTENTION_SHARE = row(
    "ATTENTION_SHARE", 0.5, "share of a buffer",
    "how much of the largest buffer scores must take so that attention is one kernel of threads",
    "predicted for an H200 without matrix instructions: it takes 2.5 to 5 times as long as "
    "products that keep scores in memory")
SEEN_ROWS = row(
    "SEEN_ROWS", 16, "rows",
    "rows of scores that share one search for masked columns",
    "chosen: a matrix of a tensor core")

# -- by threads ------------------------------------------------------------------------------------

ATTENTION_GROUP = row("ATTENTION_GROUP", 128, "threads", "the size of a workgroup", CHOSEN)
ATTENTION_THREAD = row(
    "ATTENTION_THREAD", 32, "elements",
    "the most elements of query and result that one thread holds if several can share a row",
    "read in machine code: with 64 there are spills on chips before Hopper")
ATTENTION_BLOCK = row(
    "ATTENTION_BLOCK", 32, "columns",
    "columns of scores whose keys and values are in shared memory at once", CHOSEN)
ATTENTION_STEP = row(
    "ATTENTION_STEP", 2, "columns",
    "columns of scores after which results are rescaled",
    "read in machine code: with 4 there are spills on chips before Hopper")

# -- by matrix instructions ------------------------------------------------------------------------

ATTENTION_TILES = row(
    "ATTENTION_TILES", tuple((subgroups, high, block, held) for high, block, held in (
        (2, 64, 16), (2, 64, 0), (2, 32, 16), (2, 32, 2), (2, 32, 0), (1, 64, 16), (1, 64, 0),
        (1, 32, 0)) for subgroups in (4, 8)),
    "subgroups; matrices of scores per subgroup; columns of a block; steps in registers",
    "the tiles that are tried", CHOSEN)
ATTENTION_STAGES = row(
    "ATTENTION_STAGES", 2, "stages",
    "stages of blocks: copies fill one while the other is read", CHOSEN)
ATTENTION_REGISTERS = row(
    "ATTENTION_REGISTERS", 208, "registers",
    "the most registers of 32 bits for the matrices of a thread",
    "read in machine code: of 255; with 216 there are spills")
ATTENTION_REGISTERS_FEW = row(
    "ATTENTION_REGISTERS_FEW", 104, "registers",
    "the most registers of matrices with which a thread needs no more than 128 in all",
    "read in machine code")
ATTENTION_ROLES_TILES = row(
    "ATTENTION_ROLES_TILES", ((2, 128), (2, 64), (1, 128), (1, 64)), "teams; columns of a block",
    "the tiles that are tried for workgroups with roles, the first that fits",
    "measured on an H200, heads of 128, 4096 rows: 604, 506, 446 TFLOP/s of the first three, 588 "
    "with blocks of 176 or with three stages, 524 of three teams with blocks of 64")
ATTENTION_ROLES_COLUMNS = row(
    "ATTENTION_ROLES_COLUMNS", 1024, "columns",
    "the fewest columns for which workgroups have roles: with fewer they wait for copies",
    "predicted for an H200: 1.4 times the speed with 4096, where 2.0 was measured, 1.3 with 1024")
ATTENTION_ROLES_SIZE = row(
    "ATTENTION_ROLES_SIZE", 256, "elements",
    "the shortest query and result together for which workgroups have roles",
    "measured on an H200 with heads of 128; shorter ones have not run")
ATTENTION_ROLES_OTHERS = row(
    "ATTENTION_ROLES_OTHERS", 32, "registers",
    "registers of a thread that multiplies, beside those of matrices", "read in machine code: 26")
ATTENTION_NUMBERS = row(
    "ATTENTION_NUMBERS", 4, "numbers",
    "the most numbers of an operand, such as a seed, that threads hold for dropout", CHOSEN)
ATTENTION_DROPPED = row(
    "ATTENTION_DROPPED", (0.75, 0.8), "registers",
    "further registers of a thread that multiplies, for each column of a block, where it draws "
    "random numbers for dropout, without a mask of scores and with one",
    "read in machine code: without, heads of 128 spill; with 0.75, gradients of masked heads of 64")
ATTENTION_GRADIENT_COLUMNS = row(
    "ATTENTION_GRADIENT_COLUMNS", 128, "columns",
    "the fewest columns for which gradients of attention compute scores again",
    "predicted for an H200: 2.7 times the speed with 128, 5 with 4096")
ATTENTION_GRADIENT_BLOCKS = row(
    "ATTENTION_GRADIENT_BLOCKS", (64, 48, 32), "rows or columns",
    "the blocks that are tried for gradients of attention, the first that fits",
    "read in machine code: with heads of 128, blocks of 64 spill")
ATTENTION_GRADIENT_TILES = row(
    "ATTENTION_GRADIENT_TILES", tuple((subgroups, high, block, held) for high, block in (
        (2, 32), (2, 16), (1, 64), (1, 32), (1, 16)) for held in (16, 12, 8, 4, 0)
        for subgroups in (8, 4)),
    "subgroups; matrices of lines per subgroup; lines of a block; steps in registers",
    "the tiles that are tried for gradients of attention by subgroups", CHOSEN)
ATTENTION_GRADIENT_REGISTERS = row(
    "ATTENTION_GRADIENT_REGISTERS", 234, "registers",
    "the most registers of 32 bits for the matrices of a thread, their masks and their places",
    "read in machine code: of 255; with 236 there are spills")
ATTENTION_GRADIENT_LINES = row(
    "ATTENTION_GRADIENT_LINES", 12, "registers",
    "registers of a thread for the places of the lines of each matrix, twice as many with masks "
    "and dropout",
    "read in machine code: with 8, two matrices spill where one with as many registers does not")
ATTENTION_GRADIENT_BARRIER = row(
    "ATTENTION_GRADIENT_BARRIER", 50, "cycles",
    "the time in which a compute unit passes from one block to the next", CHOSEN)
ATTENTION_GRADIENT_COPIER = row(
    "ATTENTION_GRADIENT_COPIER", 24, "registers",
    "registers of a thread that copies, so that others have 240",
    "read in machine code: with 40, gradients of masked heads of 128 spill")
ATTENTION_ISSUE = row(
    "ATTENTION_ISSUE", 0.25, "cycles",
    "the time in which a compute unit starts an instruction", CHOSEN)
ATTENTION_ELEMENT = row(
    "ATTENTION_ELEMENT", 7, "instructions",
    "instructions for each score",
    "read in machine code")
