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


def of_subgroups(function: Any) -> Any:
    """A kernel that reduces each subgroup."""
    @zt.kernel
    def kernel(x):
        out = np.empty_like(x)
        for block, thread in zt.threads(BLOCKS, SIZE):
            out[block * SIZE + thread] = function(x[block * SIZE + thread])
        return out

    return kernel


def of_elements(function: Any, start: int) -> Any:
    """A kernel whose threads update five elements, in shared memory and then outside."""
    @zt.kernel
    def kernel(x):
        out = np.full(5, start, x.dtype)
        for block, thread in zt.threads(BLOCKS, SIZE):
            own = zt.shared(5, x.dtype)
            if thread < 5:
                own[thread] = start
            zt.barrier()
            function(own, thread % 5, x[block * SIZE + thread])
            zt.barrier()
            if thread < 5:
                function(out, thread, own[thread])
        return out

    return kernel


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


def added(array: Any, at: Any, x: Any) -> None:
    """`atomic_add` as an update of one's own."""
    old = zt.atomic_add(array, at, 0)
    while True:
        seen = zt.atomic_cas(array, at, old, old + x)
        if seen == old:
            break
        old = seen


KERNELS: dict[str, Any] = {
    **{k.__name__: k for k in (barrier, lane, shuffle, shuffle_xor, atomic_exchange)},
    "subgroup_sum": of_subgroups(zt.subgroup_sum), "subgroup_max": of_subgroups(zt.subgroup_max),
    "subgroup_min": of_subgroups(zt.subgroup_min), "atomic_add": of_elements(zt.atomic_add, 0),
    "atomic_min": of_elements(zt.atomic_min, 100), "atomic_max": of_elements(zt.atomic_max, 0),
    "atomic_cas": of_elements(added, 0)}


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
