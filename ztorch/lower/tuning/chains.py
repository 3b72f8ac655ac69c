"""Chains on grids: small kernels that depend on one another, in one launch."""

from __future__ import annotations

from ztorch.lower.tuning.table import CHOSEN, row

CHAIN_GAP = row(
    "CHAIN_GAP", 1000, "cycles",
    "between the end of a kernel and the start of one that depends on it",
    "measured on an H200: 100 launches in a row take 0.94 us each, with small kernels; "
    "machines/gpus.py guesses that half of it is the gap")
CHAIN_CLUSTER = row(
    "CHAIN_CLUSTER", 600, "cycles", "a barrier of the workgroups of a cluster",
    "a guess, as in machines/gpus.py")
CHAIN_LAUNCH = row(
    "CHAIN_LAUNCH", 2000, "cycles", "a barrier of all workgroups of a launch",
    "a guess, as in machines/gpus.py")
CHAIN_LATENCY = row(
    "CHAIN_LATENCY", 250, "cycles",
    "what a stage saves whose weights are loaded before the barrier",
    "the latency of the shared cache of machines/gpus.py")
CHAIN_ROUND = row(
    "CHAIN_ROUND", 400, "cycles",
    "of a workgroup of a chain for a further workgroup's share of a stage",
    "predicted for an H200: a loop over shares waits for the shared cache in each trip")
CHAIN_UNIT_BYTES = row(
    "CHAIN_UNIT_BYTES", 64, "bytes per cycle", "that one compute unit reads from the shared cache",
    "as in machines/gpus.py")
CHAIN_GROUPS = row(
    "CHAIN_GROUPS", 32, "workgroups",
    "the most of a chain over the whole machine, all of which must run at once",
    "chosen: a unit holds two, and the smallest GPUs of these chips have 16 units")
CHAIN_GROUPS_HOPPER = row(
    "CHAIN_GROUPS_HOPPER", 64, "workgroups", "the same on a Hopper",
    "chosen: the smallest has 78 units, and half of them read as fast as all")
CHAIN_CLUSTER_GROUPS = row(
    "CHAIN_CLUSTER_GROUPS", 8, "workgroups", "the most of a chain in a cluster",
    "public figures: larger clusters are not portable")
CHAIN_BYTES = row(
    "CHAIN_BYTES", 1 << 22, "bytes", "the most data of a kernel that becomes part of a chain",
    CHOSEN)
CHAIN_ROWS = row(
    "CHAIN_ROWS", 4, "rows",
    "the most of products that become sums over the rows of a matrix, as stages of a chain",
    "predicted for an H200: 4 rows of 1024-1024-1024-1024 take 16.6 us for 17.7, 8 rows 24.3 for "
    "18.8")
CHAIN_MOST = row("CHAIN_MOST", 16, "kernels", "the longest chain", CHOSEN)
CHAIN_SECTOR = row(
    "CHAIN_SECTOR", 32, "bytes",
    "of neighboring results below which a read of their rows takes bytes that nobody needs",
    "public figures: the part of a line that NVIDIA's caches load")
CHAIN_UNROLLED = row(
    "CHAIN_UNROLLED", 32, "trips",
    "the longest loop of a part that is unrolled, so that its loads start before the barrier",
    CHOSEN)
CHAIN_AHEAD = row(
    "CHAIN_AHEAD", 96, "registers",
    "of a thread for what all parts of a chain load before a barrier",
    "chosen: two workgroups of 256 threads leave each 128")
CHAIN_ELEMENT = row(
    "CHAIN_ELEMENT", 8, "cycles", "of a workgroup for an element of each of its threads", CHOSEN)
CHAIN_LEVEL = row(
    "CHAIN_LEVEL", 90, "cycles", "of one step of the exchange of partial results",
    "the latencies of machines/gpus.py: two accesses of shared memory and a barrier")
