"""A kernel whose warpgroups multiply matrices asynchronously, strip by strip out of two stages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ztorch.dtypes import DType, f16, f32, from_storage, i32, to_storage
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import SWIZZLE_LINE, WARPGROUP, Fragment, Kernel, MmaShape, Operand
from ztorch.lower.grid.workgroups import threads

SUBGROUP, STRIPS, STAGES = 32, 3, 2
TEAM = SUBGROUP * WARPGROUP
LINE = SWIZZLE_LINE // f16.bytes  # elements of a line of 16 bits



def shape_of(d: DType) -> MmaShape:
    return MmaShape(16, 8, 8, f32, f32, mantissa_bits=10) if d is f32 else MmaShape(16, 8, 16, d, f32)


def multiplying(d: DType = f16, columns: int = 64, transposed: bool = False, source_transposed: bool = True,
                teams: int = 2, leave_out: str = "") -> Kernel:
    """y = a @ b, but for a mistake if anything is left out. Both operands are in global memory strip by strip in
    the order of the shared ones, panels of lines of 128 bytes."""
    b, rows, line = Builder("multiplying", i32), 64 * teams, SWIZZLE_LINE // d.bytes  # elements: steps along k too
    fragment, chunk = Fragment("c", shape_of(d)), 16 // d.bytes
    sizes = {"a": rows * line, "b": columns * line}
    for name, size in sizes.items():
        b.memory(name, d, STRIPS * size)
    b.memory("y", f32, rows * columns, access="w")
    for name, size in sizes.items():
        b.memory(f"near_{name}", d, STAGES * size, "shared", "rw", swizzled=True)

    def step(name: str, emit: Callable[[], None]) -> None:
        if name != leave_out:
            emit()

    def copy(strip: Operand, stage: Operand, t: Operand) -> None:
        for name, size in sizes.items():
            for at in range(0, size, TEAM * teams * chunk):
                place = b.add(b.mul(t, chunk), at)
                with b.if_(b.lt(place, size)):
                    b.copy_async(f"near_{name}", b.add(b.mul(stage, size), place), name,
                                 b.add(b.mul(strip, size), place), chunk, align=16)
        b.copies_commit()

    with b.loop(0, 1, kind="grid"), threads(b, TEAM * teams) as t:
        team = b.div(t, TEAM)
        sums = [b.matrix(fragment, SUBGROUP, 0) for _ in range(columns // 8)]
        copy(b.const(0, i32), b.const(0, i32), t)
        with b.loop(0, STRIPS) as strip:
            stage = b.rem(strip, STAGES)
            step("wait for copies", lambda: b.copies_wait(0))
            step("fence of memory", b.shared_fence)
            step("barrier", b.barrier)
            step("fence of matrices", b.mma_fence)
            left = b.add(b.mul(stage, sizes["a"]), b.mul(team, 64 * line))
            right = b.mul(stage, sizes["b"])
            for d_k in range(0, line, shape_of(d).k):
                b.mma_async("near_a", left, "near_b", right, sums, transposed=transposed,
                            off=d_k * line if transposed else d_k, source_transposed=source_transposed,
                            source_off=d_k if source_transposed else d_k * line, panel=line * line)
            b.mma_commit()
            step("wait for products", b.mma_wait)
            ahead = b.add(strip, 1)
            with b.if_(b.lt(ahead, STRIPS)):
                copy(ahead, stage if leave_out == "the other stage" else b.rem(ahead, STAGES), t)
        number = b.div(t, SUBGROUP)
        for k, total in enumerate(sums):
            b.mma_store("y", b.mul(number, 16 * columns), b.get(total), columns, off=8 * k)
    return b.kernel()


def numbers(kernel: Kernel, transposed: bool = False, source_transposed: bool = True,
            ) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Small whole numbers, whose products are exact, and the expected y."""
    rng, held, sides = np.random.default_rng(1), {}, []
    line = SWIZZLE_LINE // kernel.memory("a").dtype.bytes
    for name, along_k in (("a", not transposed), ("b", source_transposed)):
        m = kernel.memory(name)
        x = rng.integers(-4, 5, m.size).astype(np.float32)
        held[name] = to_storage(m.dtype, x)
        x = from_storage(m.dtype, held[name]).astype(np.float64).reshape(STRIPS, -1, line)
        if not along_k:  # panels of `line` steps along k
            x = x.reshape(STRIPS, -1, line, line).swapaxes(2, 3).reshape(STRIPS, -1, line)
        sides.append(x)
    y = kernel.memory("y")
    held["y"] = np.zeros(y.size, np.float32)
    return held, np.einsum("sik,sjk->ij", *sides).astype(np.float32).reshape(-1)
