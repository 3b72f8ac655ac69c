"""Tuned constants of sums over sliding windows, rows of the table of `tuning.py`."""

from __future__ import annotations

from ztorch.lower.tuning import CHOSEN, row

SLIDING_REGISTERS = row(
    "SLIDING_REGISTERS", 0.5, "share of the vector registers", "that hold sums of neighbouring "
    "windows; the others hold the weights of a row of the window, and elements", CHOSEN)
SLIDING_PAIRS = row(
    "SLIDING_PAIRS", 96, "pairs", "of a window and an element of one of its rows that are computed "
    "without a loop at most", "chosen by the size of the code")
SLIDING_VALUES = row(
    "SLIDING_VALUES", 160, "values", "of all neighbouring windows that are computed without a loop "
    "at most", "chosen by the size of the code")
SLIDING_BORDERS = row(
    "SLIDING_BORDERS", 6, "groups", "of neighbouring windows at borders of an image that have code "
    "of their own at most", "chosen by the size of the code")
CORRELATION_REGISTERS = row(
    "CORRELATION_REGISTERS", 0.8, "share of the vector registers", "that hold sums for places of a "
    "window over all positions; the others hold elements", CHOSEN)
CORRELATION_RESULTS = row(
    "CORRELATION_RESULTS", 64, "places", "of a window at most", "chosen by the size of the code")
CORRELATION_PAIRS = row(
    "CORRELATION_PAIRS", 96, "pairs", "of a place and a position that are computed without a loop "
    "at most", "chosen by the size of the code")
CORRELATION_CODE = row(
    "CORRELATION_CODE", 2048, "pairs", "in the code of all borders together at most",
    "chosen by the size of the code")
