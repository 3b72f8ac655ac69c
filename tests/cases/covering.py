"""The part of a product of cases and machines that is tried without `--full`.

Each run tries every primitive op on every machine: CPU levels, C, interpreted machines, Vulkan, OpenCL, WebGPU, PTX, ROCm
and Metal; an op that is made of others on half of them, and the next day on the other half (`jobs.sharing`). Of other
products it takes a third or a fourth, by the day (`turns.py`).
Dtypes beside float32, float64 and 32-bit integers run on one interpreted machine or CPU level and on one device,
and all of them on the best level of this CPU. Which of its samples an op runs on a machine goes
round: over all machines and `DAYS` days (`COMPOSED_DAYS`), all samples are run. The full product is for `pytest --full`,
or ZTORCH_FULL=1, which `.ci/run` passes on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

from tests.cases.available import COMPUTING, PLAYED

T = TypeVar("T")


# After so many days, the largest products of a registry and machines have run every case.
DAYS = 4
COMPOSED_DAYS = 8  # of ops that are made of others


def today() -> int:
    """The number of the day that this run takes: ZTORCH_TURN, where that is a number."""
    if "ZTORCH_DAY" not in os.environ:  # once for a run, whose workers may begin after midnight
        turn = os.environ.get("ZTORCH_TURN", "")
        os.environ["ZTORCH_DAY"] = turn if turn.isdigit() else str(int(time.time()) // 86400)
    return int(os.environ["ZTORCH_DAY"])


def full() -> bool:
    """Whether this run tries everything."""
    return os.environ.get("ZTORCH_FULL", "") not in ("", "0")


def share(items: Sequence[T], turn: int, of: int = 4) -> list[T]:
    """Each `of`-th item, at least one, beginning elsewhere in each turn; all of them in a full run.
    `of` turns in a row meet every item.

    >>> share("abcdefgh", turn=1, of=4) if not full() else list("bf")
    ['b', 'f']
    """
    if full() or not items:
        return list(items)
    step = min(of, len(items))
    return list(items[turn % step::step])


def among_devices(cases: Sequence[Any], always: Sequence[Any] = ()) -> list[Any]:
    """(backend, case), of which a run that is not full tries each case on one of the devices that a
    processor plays, those that are always tried on all, and everything on any other device."""
    rare = [b for b in COMPUTING if b not in PLAYED]
    return [*pairs(PLAYED, cases, [(b, c) for b in PLAYED for c in always]),
            *(pytest.param(b, c) for b in rare for c in cases)]


def one_in_each_run(*backends: str) -> list[Any]:
    """The first of these devices; in a full run all. For host code of the runtime that is the same for all
    devices: another test begins with another of them."""
    return [pytest.param(b, marks=pytest.mark.full if k else ()) for k, b in enumerate(backends)]


def pairs(rows: Sequence[Any], columns: Sequence[Any], always: Sequence[tuple] = ()) -> list[Any]:
    """All (row, column), of which a run that is not full tries a few that name each of both, and
    those that are always tried."""
    several, most = min(len(rows), len(columns)), max(len(rows), len(columns))
    chosen = {(k % len(rows), k % len(columns)) for k in range(most)} if several else set()
    return [pytest.param(row, column, marks=() if (i, j) in chosen or (row, column) in always
                         else pytest.mark.full)
            for i, row in enumerate(rows) for j, column in enumerate(columns)]
