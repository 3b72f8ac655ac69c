"""A kernel whose workgroups meet."""

from __future__ import annotations

import numpy as np

from ztorch.dtypes import f32, i32, u32
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel

GROUPS, THREADS = 4, 64
COUNT = GROUPS * THREADS


def reversing(barrier: str = "grid", around: str = "", counter: str = "arrived", rounds: int = 3,
              instead: str = "") -> Kernel:
    """x is reversed and doubled, by turns in two memories, with a barrier of the launch after each round but, if
    another is put in its place, after the second."""
    b = Builder("reversing", i32)
    b.memory("x", f32, COUNT, access="rw"), b.memory("y", f32, COUNT, access="rw")
    b.memory("arrived", u32, 2, access="rw"), b.memory("signed", i32, 1, access="rw")
    b.workgroup, b.cluster = (THREADS, 1, 1), GROUPS if barrier == "cluster" else 1

    def meet(kind: str) -> None:
        if kind == "grid":
            b.grid_barrier(counter)
        elif kind != "none":
            getattr(b, {"workgroup": "barrier", "cluster": "cluster_barrier"}[kind])()

    with b.loop(0, GROUPS, kind="grid") as g, b.loop(0, THREADS, kind="block") as t:
        at = b.add(b.mul(g, THREADS), t)
        for k in range(rounds):
            source, target = ("x", "y")[::(-1) ** k]
            b.store(target, b.sub(COUNT - 1, at), b.mul(b.load(source, at), 2.0))
            kind = instead or barrier if k == 1 else barrier
            if around == "if":
                with b.if_(b.lt(g, GROUPS - 1)):
                    meet(kind)
            elif around == "loop":
                with b.loop(0, b.add(g, 1)):
                    meet(kind)
            else:
                meet(kind)
    return b.kernel()


def numbers() -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).normal(size=COUNT).astype(np.float32)
    return {"x": x, "y": np.zeros(COUNT, np.float32), "arrived": np.zeros(2, np.uint32),
            "signed": np.zeros(1, np.int32)}
