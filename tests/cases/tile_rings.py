"""A kernel whose producer brings strips of both operands through a ring of stages, and whose consumers
multiply them: the least that has roles, and of which anything can be left out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.cases.async_products import LINE, SUBGROUP, TEAM
from ztorch.dtypes import DType, f16, f32, i32
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Fragment, Kernel, MmaShape
from ztorch.lower.grid.workgroups import threads

ROWS, COLUMNS, STRIPS, STAGES = 64, 64, 5, 2
SIZE = ROWS * LINE  # elements of a strip


def ringing(d: DType = f16, k: int = STRIPS * LINE, groups: int = 1, cluster: int = 1, leave_out: str = "",
            expected: int = 2 * SIZE * 2, parity: int = 1, ahead: int = 0) -> Kernel:
    """y = a @ b of each group, but for a mistake: `leave_out` names a step that is not there, `expected` is
    the bytes of a stage, `parity` the one that the producer begins with, `ahead` how many stages further
    consumers read than they should. In a cluster each group brings half of b to all."""
    b, extent = Builder("ringing", i32), groups * ROWS
    fragment = Fragment("c", MmaShape(16, 8, 16, d, f32))
    b.memory("a", d, extent * k)
    b.memory("b", d, COLUMNS * k)
    b.memory("y", f32, extent * COLUMNS, access="w")
    for name in ("near_a", "near_b"):
        b.memory(name, d, STAGES * SIZE, "shared", "rw", swizzled=True)
    b.cluster = cluster

    def step(name: str, emit: Callable[[], None]) -> None:
        if name != leave_out:
            emit()

    with b.loop(0, groups, kind="grid") as g, threads(b, 2 * TEAM) as t:
        full = b.barriers("full", STAGES)
        empty = b.barriers("empty", STAGES)
        with b.if_(b.eq(t, 0)):
            for s in range(STAGES):
                b.mbarrier_init(full, s, 1)
                b.mbarrier_init(empty, s, cluster)
            step("fence of barriers", b.mbarrier_fence)
        step("barrier", b.cluster_barrier if cluster > 1 else b.barrier)
        count = -(-k // LINE)
        with b.if_(b.ge(b.div(t, TEAM), 1), els=True) as roles:
            b.thread_registers(40, fewer=True)
            with b.if_(b.eq(t, TEAM)), b.loop(0, count) as n:
                stage = b.rem(n, STAGES)
                turn = b.div(n, STAGES)
                step("wait for consumers", lambda: b.mbarrier_wait(empty, stage, b.rem(b.add(turn, parity), 2)))
                step("expected bytes", lambda: b.mbarrier_expect(full, stage, expected))
                x = b.mul(n, LINE)
                b.copy_tile("near_a", b.mul(stage, SIZE), "a", [x, b.mul(g, ROWS)], (k, extent), (1, k),
                            (LINE, ROWS), full, stage)
                part = COLUMNS // cluster
                first = b.mul(b.rem(g, cluster), part)
                b.copy_tile("near_b", b.add(b.mul(stage, SIZE), b.mul(first, LINE)), "b", [x, first],
                            (k, COLUMNS), (1, k), (LINE, part), full, stage, cluster=cluster)
            b.else_(roles)
            b.thread_registers(232, fewer=False)
            sums = [b.matrix(fragment, SUBGROUP, 0) for _ in range(COLUMNS // 8)]
            with b.loop(0, count) as n:
                stage = b.rem(b.add(n, ahead), STAGES)
                turn = b.div(n, STAGES)
                step("wait for copies", lambda: b.mbarrier_wait(full, b.rem(n, STAGES), b.rem(turn, 2)))
                b.mma_fence()
                for d_k in range(0, LINE, 16):
                    b.mma_async("near_a", b.mul(stage, SIZE), "near_b", b.mul(stage, SIZE), sums, off=d_k,
                                source_off=d_k, source_transposed=True)
                b.mma_commit()
                step("wait for products", b.mma_wait)
                with b.if_(b.eq(t, 0)):
                    step("arrival of consumers", lambda: b.mbarrier_arrive(empty, b.rem(n, STAGES), cluster=cluster))
            if leave_out == "wait for products":
                b.mma_wait()
            b.team_barrier(TEAM)
            row = b.add(b.mul(g, ROWS), b.mul(b.div(t, SUBGROUP), 16))
            for n, total in enumerate(sums):
                b.mma_store("y", b.mul(row, COLUMNS), b.get(total), COLUMNS, off=8 * n)
        if cluster > 1:
            step("barrier at the end", b.cluster_barrier)
    return b.kernel()


def numbers(kernel: Kernel) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Small whole numbers, whose products are exact, and the expected y."""
    rng, k = np.random.default_rng(1), kernel.memory("b").size // COLUMNS
    a, b = (rng.integers(-4, 5, (kernel.memory(n).size // k, k)).astype(np.float16) for n in ("a", "b"))
    want = a.astype(np.float32) @ b.astype(np.float32).T
    return {"a": a.reshape(-1), "b": b.reshape(-1), "y": np.zeros(want.size, np.float32)}, want.reshape(-1)
