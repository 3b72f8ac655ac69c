"""Tuned constants of transformed convolutions, rows of the table of `tuning.py`."""

from __future__ import annotations

from ztorch.lower.tuning import CHOSEN, row

TRANSFORM_CHANNELS = row(
    "TRANSFORM_CHANNELS", 16, "channels and filters", "of a convolution at least whose windows of "
    "3 x 3 are transformed", CHOSEN)
TRANSFORM_RESULTS = row(
    "TRANSFORM_RESULTS", 4, "results", "along each axis of a tile of a transformed convolution: 36 "
    "multiplications give 16; with 2, 16 give 4", "on Zen 5, 56 x 56 x 64: 860 us become 290")
TRANSFORM_NEAR = row(
    "TRANSFORM_NEAR", 0.75, "position", "of the nearer pair of points at which transformed "
    "convolutions are evaluated", "of 9 choices with exact products, 0.75 and 1.5 have the least "
    "errors: 1.7e-6 of the largest result; 1 and 2 have 6.7e-6")
TRANSFORM_FAR = row(
    "TRANSFORM_FAR", 1.5, "position", "of the farther pair", "see TRANSFORM_NEAR")
TRANSFORM_CYCLES = row(
    "TRANSFORM_CYCLES", 150.0, "cycles", "to transform a vector of a tile, or of its results",
    "on Zen 5, 128 x 128 x 16 is as fast either way, 64 x 64 x 32 takes 0.67 of the time")
TRANSFORM_SLOTS = row(
    "TRANSFORM_SLOTS", 8, "issue slots", "for each element of a transform", "counted")
TRANSFORM_GAIN = row(
    "TRANSFORM_GAIN", 0.8, "ratio", "of the estimated time of a transformed convolution to that of "
    "the product as it is, below which it is transformed", CHOSEN)
