"""A small kernel for each function of threads, in any dtype: the result does not depend on the order of threads."""

from __future__ import annotations

from typing import Any

import numpy as np

import ztorch as zt
from tests.parity import Job
from ztorch.dtypes import DType
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph

BLOCKS, SIZE = 2, 64
N = BLOCKS * SIZE


@zt.kernel
def barrier(x):
    """Shared memory too, and turns that end early, by data and by `break`."""
    out, turns = np.empty_like(x), np.zeros(N, np.int32)
    for block, thread in zt.threads(BLOCKS, SIZE):
        own = zt.shared(SIZE, x.dtype)
        own[SIZE - 1 - thread] = x[block * SIZE + thread]
        zt.barrier()
        count = 0
        for k in range(thread % 5):
            if own[k] == own[0] and k > 1:
                break
            count += k + 1
        turns[block * SIZE + thread] = count
        out[block * SIZE + thread] = own[thread]
    return out, turns


@zt.kernel
def lane(x):
    out = np.empty_like(x)
    for block, thread in zt.threads(BLOCKS, SIZE):
        out[block * SIZE + thread] = x[zt.lane(thread + 3)]
    return out


@zt.kernel
def shuffle(x):
    out = np.empty_like(x)
    for block, thread in zt.threads(BLOCKS, SIZE):
        i = block * SIZE + thread
        out[i] = zt.shuffle(x[i], thread * 3 + 5)
    return out


@zt.kernel
def shuffle_xor(x):
    near, far = np.empty_like(x), np.empty_like(x)
    for block, thread in zt.threads(BLOCKS, SIZE):
        i = block * SIZE + thread
        near[i] = zt.shuffle_xor(x[i], 1)
        far[i] = zt.shuffle_xor(near[i], 21)
    return near, far


@zt.kernel
def subgroup_sum(x):
    out = np.empty_like(x)
    for block, thread in zt.threads(BLOCKS, SIZE):
        out[block * SIZE + thread] = zt.subgroup_sum(x[block * SIZE + thread])
    return out


@zt.kernel
def subgroup_max(x):
    out = np.empty_like(x)
    for block, thread in zt.threads(BLOCKS, SIZE):
        out[block * SIZE + thread] = zt.subgroup_max(x[block * SIZE + thread])
    return out


@zt.kernel
def subgroup_min(x):
    out = np.empty_like(x)
    for block, thread in zt.threads(BLOCKS, SIZE):
        out[block * SIZE + thread] = zt.subgroup_min(x[block * SIZE + thread])
    return out


@zt.kernel
def atomic_add(x):
    """In shared memory and outside; so are the others."""
    out = np.zeros(5, x.dtype)
    for block, thread in zt.threads(BLOCKS, SIZE):
        own = zt.shared(5, x.dtype)
        if thread < 5:
            own[thread] = 0
        zt.barrier()
        zt.atomic_add(own, thread % 5, x[block * SIZE + thread])
        zt.barrier()
        if thread < 5:
            zt.atomic_add(out, thread, own[thread])
    return out


@zt.kernel
def atomic_min(x):
    out = np.full(5, 100, x.dtype)
    for block, thread in zt.threads(BLOCKS, SIZE):
        own = zt.shared(5, x.dtype)
        if thread < 5:
            own[thread] = 90
        zt.barrier()
        zt.atomic_min(own, thread % 5, x[block * SIZE + thread])
        zt.barrier()
        if thread < 5:
            zt.atomic_min(out, thread, own[thread])
    return out


@zt.kernel
def atomic_max(x):
    out = np.zeros(5, x.dtype)
    for block, thread in zt.threads(BLOCKS, SIZE):
        own = zt.shared(5, x.dtype)
        if thread < 5:
            own[thread] = 0
        zt.barrier()
        zt.atomic_max(own, thread % 5, x[block * SIZE + thread])
        zt.barrier()
        if thread < 5:
            zt.atomic_max(out, thread, own[thread])
    return out


@zt.kernel
def atomic_exchange(x):
    """The numbers that threads got and those left behind are together those put in."""
    held, total, before = np.full(1, 9, x.dtype), np.zeros(1, x.dtype), np.empty_like(x)
    for block, thread in zt.threads(BLOCKS, SIZE):
        own, i = zt.shared(SIZE, x.dtype), block * SIZE + thread
        own[thread] = x[i]
        before[i] = zt.atomic_exchange(own, thread, x[N - 1 - i]) + own[thread]
        zt.atomic_add(total, 0, zt.atomic_exchange(held, 0, x[i]))
    return total + held, before


@zt.kernel
def atomic_cas(x):
    """Sums, by an update of one's own."""
    out = np.zeros(5, x.dtype)
    for block, thread in zt.threads(BLOCKS, SIZE):
        own = zt.shared(5, x.dtype)
        if thread < 5:
            own[thread] = 0
        zt.barrier()
        added(own, thread % 5, x[block * SIZE + thread])
        zt.barrier()
        if thread < 5:
            added(out, thread, own[thread])
    return out


def added(array: Any, at: Any, x: Any) -> None:
    old = zt.atomic_add(array, at, 0)
    while True:
        seen = zt.atomic_cas(array, at, old, old + x)
        if seen == old:
            break
        old = seen


KERNELS: dict[str, Any] = {k.__name__: k for k in (
    barrier, lane, shuffle, shuffle_xor, subgroup_sum, subgroup_max, subgroup_min, atomic_add,
    atomic_min, atomic_max, atomic_exchange, atomic_cas)}


def job(name: str, d: DType) -> Job:
    """The kernel of a function on small whole numbers, whose sums all dtypes hold."""
    low = 0 if d.kind == "u" else -3
    x = np.random.default_rng(len(name)).integers(low, 4, N).astype(d.working)
    v = leaf("input", "x", x.shape, d)
    y = KERNELS[name].trace({"x": v})
    return Job(Graph({f"y{k}": r for k, r in enumerate(y if isinstance(y, tuple) else (y,))}),
               {v: x}, f"{name} {d.name}")


def plain(one: Job) -> list[np.ndarray]:
    """The result of plain Python."""
    y = KERNELS[one.label.partition(" ")[0]].debug(*one.feeds.values())
    return list(y) if isinstance(y, tuple) else [y]
