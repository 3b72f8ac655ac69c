"""The tuned constants of loops, often of one kernel: rows of the table in `tuning.py`."""

from __future__ import annotations

from ztorch.lower.tuning import CHOSEN, row

RECURRENCE_VALUES = row(
    "RECURRENCE_VALUES", 1000, "values", "of the body of a loop up to which it becomes one kernel",
    "chosen by the size of the code")
RECURRENCE_READS = row(
    "RECURRENCE_READS", 4000, "elements", "that an element of such a kernel computes and reads in "
    "a turn at most; a value that is read at several positions is computed at each",
    "chosen by the size of the code")
RECURRENCE_JOIN_SLOTS = row(
    "RECURRENCE_JOIN_SLOTS", 4, "issue slots", "of a sequence that only such a kernel reads, up to "
    "which an element of it is computed where it is read: parts that are joined", CHOSEN)
RECURRENCE_ROW_SLOTS = row(
    "RECURRENCE_ROW_SLOTS", 12, "issue slots", "of a turn up to which rows of results are computed "
    "number by number", "on Sapphire Rapids 256 turns of 1024 rows take 0.16 ms with 2 slots, and "
    "0.40 in vectors; with 16 slots 0.42 and 0.44")
RECURRENCE_VECTORS = row(
    "RECURRENCE_VECTORS", 4, "vectors", "of elements that take their turns side by side at most, "
    "because a turn of one waits for its last turn", "on Zen 3, 100 turns of 512 x 512 points of "
    "Mandelbrot's set take 7.0 ms with 1 vector, 4.3 with 2, 3.5 with 4 and 4.4 with 8")
RECURRENCE_VECTORS_FAR = row(
    "RECURRENCE_VECTORS_FAR", 8, "vectors", "the same where the rows of two turns lie a multiple "
    "of PAGE_BYTES apart and evict one another from the first cache", "on Zen 3, 1000 turns of "
    "4096 elements that are read and written take 9.3 ms with 1 vector, 2.9 with 4, 1.8 with 8")
RECURRENCE_SLOTS = row(
    "RECURRENCE_SLOTS", 1024, "issue slots", "in a turn of all vectors side by side at most, if "
    "there are several", "chosen by the size of the code")
TURN_BLOCK_SHARE = row(
    "TURN_BLOCK_SHARE", 0.5, "share of the cache", "how much of the second cache a product for the "
    "turns of a loop may fill, from which on it is computed in blocks of turns", "on a Xeon with 2 "
    "MB, LSTM (64, 32, 128), (1000, 16, 128), (256, 64, 256): 0.25 and 0.5 take 0.88 to 0.94 of "
    "the time")
