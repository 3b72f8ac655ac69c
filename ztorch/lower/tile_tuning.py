"""The tuned constants by which tiles of matrix products are chosen: rows of the table in
`tuning.py`."""

from __future__ import annotations

from ztorch.lower.tuning import CHOSEN, row

TILE_START_CYCLES = row(
    "TILE_START_CYCLES", 12.0, "cycles", "to begin a register tile: counters, addresses, zeros",
    CHOSEN)
TILE_RESULT_CYCLES = row(
    "TILE_RESULT_CYCLES", 2.0, "cycles per vector", "to store a finished vector of a tile", CHOSEN)
FETCH_SHARE = row(
    "FETCH_SHARE", 0.25, "share of the time", "of the way of a tile's operands from the second "
    "cache, that multiply-adds do not hide: large tiles need fewer bytes for each",
    "on Sapphire Rapids, 512 x 512 x 512: 7 rows of 3 vectors reach 180 GFLOP/s, 14 of 2 reach "
    "195; 2048 x 2048 x 2048: 6 of 3 reach 139, 14 of 2 reach 150")
TILING_GAIN = row(
    "TILING_GAIN", 0.999, "ratio",
    "a later tiling must take less than this share of the best time so far", CHOSEN)
ONE_HEIGHT_GAIN = row(
    "ONE_HEIGHT_GAIN", 0.965, "ratio", "tiles of two heights, which are twice the code, must take "
    "less than this share of the time of tiles of one height", "on Zen 5, 1600 rows of 256 columns "
    "take 193 us in tiles of 14 and 13 rows, 191 in tiles of 10; compiling takes 20 ms less")
ONE_HEIGHT_CYCLES = row(
    "ONE_HEIGHT_CYCLES", 1e6, "cycles", "of a product up to which that holds", "on Zen 5, 2000 "
    "rows of 512 columns, 512 deep, take 3.92 ms in tiles of 14 rows, 3.99 in tiles of 10")
