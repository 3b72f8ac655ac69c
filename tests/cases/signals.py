"""A kernel whose workgroups hand numbers to one another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ztorch.dtypes import f32, i32, u32
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Kernel

GROUPS, THREADS = 3, 64
COUNT = GROUPS * THREADS


def handing(leave_out: str = "", signals: str = "signals", early: str = "", twice: bool = False) -> Kernel:
    """Each workgroup doubles its part of x and hands it, reversed, to the workgroup before it, which adds it to its own
    part. `leave_out` names a step that is not there (the signal of the second workgroup only), `early` one that comes too soon; with `twice` it signals again."""
    b = Builder("handing", i32)
    b.memory("x", f32, COUNT), b.memory("y", f32, COUNT, access="w"), b.memory("handed", f32, COUNT, access="rw")
    b.memory("signals", u32, GROUPS, access="rw"), b.memory("signed", i32, GROUPS, access="rw")
    b.workgroup = (THREADS, 1, 1)

    def step(name: str, emit: Callable[[], None]) -> None:
        if name != leave_out:
            emit()

    with b.loop(0, GROUPS, kind="grid") as g, b.loop(0, THREADS, kind="block") as t:
        first, after = b.eq(t, 0), b.add(g, 1)
        at, start = b.add(b.mul(g, THREADS), t), b.mul(after, THREADS)
        own = b.mul(b.load("x", at), 2.0)

        def signal() -> None:
            with b.if_(b.and_(first, b.gt(g, 1 if leave_out == "signal" else 0))):
                b.grid_signal(signals, g)

        def wait() -> None:
            with b.if_(b.and_(first, b.lt(after, GROUPS))):
                b.grid_wait(signals, after)

        if early == "wait":
            wait()
        if early == "signal":
            signal()
        b.store("handed", at, own)
        step("barrier before", b.barrier)
        if early != "signal":
            signal()
        if twice:
            signal()
        if early != "wait":
            step("wait", wait)
        step("barrier behind", b.barrier)
        total = b.var(f32, 1)
        b.set(total, own)
        with b.if_(b.lt(after, GROUPS)):
            b.set(total, b.add(b.get(total), b.load("handed", b.sub(b.add(start, THREADS - 1), t))))
        b.store("y", at, b.get(total))
    return b.kernel()


def numbers() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The memories, and the expected y."""
    x = np.random.default_rng(0).normal(size=COUNT).astype(np.float32)
    parts = 2 * x.reshape(GROUPS, THREADS)
    want = parts.copy()
    want[:-1] += parts[1:, ::-1]
    empty = {"y": np.zeros(COUNT, np.float32), "handed": np.zeros(COUNT, np.float32),
             "signals": np.zeros(GROUPS, np.uint32), "signed": np.zeros(GROUPS, np.int32)}
    return {"x": x, **empty}, want.reshape(-1)
