"""The share of this machine's limits that a kernel reaches: how fast arrays can be copied, and how
many multiply-adds can be done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter, process_time

import numpy as np

from benchmarks import peers
from benchmarks.programs import target
from ztorch.tune.peaks import measured_peaks

TURNS, REPEATS = 15, 20  # of which the fastest turn counts


@cache
def multiply_adds(threads: int) -> float:
    """FLOPs a second of multiply-adds in registers, each of which counts as 2."""
    return measured_peaks(target(), threads).flops


@cache
def copying(nbytes: int, threads: int) -> float:
    """Bytes a second, those read and those written, of the fastest copy that is here of so many
    bytes together: NumPy's, or PyTorch's."""
    x = np.ones(max(1, nbytes // 8), np.float32)
    y = np.empty_like(x)
    copies: list[Callable[[], object]] = [lambda: np.copyto(y, x)] if threads == 1 else []
    if torch := peers.module("torch"):
        source, result = torch.from_numpy(x), torch.from_numpy(y)
        copies.append(lambda: result.copy_(source))
    return max(2 * x.nbytes / _seconds(copy, threads) for copy in copies)


def _seconds(call: Callable[[], object], threads: int) -> float:
    clock = process_time if threads == 1 else perf_counter
    times = []
    for _ in range(TURNS):
        begun = clock()
        for _ in range(REPEATS):
            call()
        times.append((clock() - begun) / REPEATS)
    return min(times)


def shares(inputs: Sequence[np.ndarray], results: Sequence[np.ndarray], flops: float,
           seconds: float, threads: int) -> dict[str, str]:
    """The columns of a table that say how near a time is to the limits.

    Args:
        inputs: Each is read once at least.
        results: Each is written once at least.
        flops: Of products; 0 if there are none.
        seconds: How long it took.
        threads: How many shared the work.
    """
    nbytes = _moved(inputs, results)
    out = {"of the copy rate": _percent(nbytes / seconds / copying(nbytes, threads))}
    if flops:
        out["of the multiply-adds"] = _percent(flops / seconds / multiply_adds(threads))
    return out


def fewest_seconds(inputs: Sequence[np.ndarray], results: Sequence[np.ndarray], flops: float,
                   threads: int) -> float:
    """The time that the limits leave: to copy as many bytes, or to do as many multiply-adds.

    Args:
        inputs: As for `shares`.
        results: Likewise.
        flops: Likewise.
        threads: Likewise.
    """
    nbytes = _moved(inputs, results)
    return max(nbytes / copying(nbytes, threads), flops / multiply_adds(threads))


def _moved(inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> int:
    return sum(x.nbytes for x in (*inputs, *results))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
