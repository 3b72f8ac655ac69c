"""Kernels in which every subgroup multiplies matrices of its own."""

from __future__ import annotations

import numpy as np

from ztorch.dtypes import from_storage, i32, to_storage
from ztorch.ir.builder import Builder
from ztorch.ir.kernel import Fragment, Kernel, MmaShape

SUBGROUP = 32


def products(shape: MmaShape, transposed: tuple[bool, bool, bool] = (False, False, False),
             space: str = "shared", align: int = 0, subgroups: int = 2, off: int = 8,
             subgroup: int = SUBGROUP) -> Kernel:
    """y = a @ b + a @ b + c, with an a and a c of each subgroup's own and one b for all."""
    b, sizes, pitches = Builder("products", i32), {}, {}
    for name, turn, pad, count in zip("abc", transposed, (8, 8, 3), (subgroups, 1, subgroups), strict=True):
        rows, columns = Fragment(name, shape).extent[::-1 if turn else 1]
        pitches[name], sizes[name] = columns + pad, rows * (columns + pad)
        b.memory(name, Fragment(name, shape).dtype, count * sizes[name] + off)
    b.memory("y", shape.into, subgroups * sizes["c"] + off, access="rw")
    threads = subgroups * subgroup
    b.workgroup = (threads, 1, 1)
    held = {"a": "a", "b": "b"}
    with b.loop(0, threads, kind="block") as t:
        if space == "shared":
            for name in "ab":
                m = b.memories[name]
                held[name] = b.memory(f"near_{name}", m.dtype, m.size, "shared", "rw")
                with b.loop(t, m.size, threads) as i:
                    b.store(held[name], i, b.load(name, i))
            b.barrier()
        which = b.div(t, subgroup)
        x, y = (b.mma_load(held[name], b.mul(which, sizes[name]) if name == "a" else 0,
                           Fragment(name, shape), subgroup, pitches[name], turn, off, align)
                for name, turn in zip("ab", transposed[:2], strict=True))
        place = b.mul(which, sizes["c"])
        c = b.mma_load("c", place, Fragment("c", shape), subgroup, pitches["c"], transposed[2], off)
        v = b.matrix(Fragment("c", shape), subgroup, 0)
        b.set(v, b.mma(x, y, b.get(v)))
        b.set(v, b.mma(x, y, c))
        b.set(v, b.mma(x, y, b.get(v)))
        b.mma_store("y", place, b.get(v), pitches["c"], transposed[2], off)
    return b.kernel()


def numbers(kernel: Kernel, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    held = {m.name: to_storage(m.dtype, rng.normal(size=m.size).astype(m.dtype.working))
            for m in kernel.memories if m.space == "global"}
    held["y"][:] = 7  # where nothing is written, it stays
    return held


def expected(kernel: Kernel, held: dict[str, np.ndarray], shape: MmaShape,
             transposed: tuple[bool, bool, bool], subgroups: int = 2, off: int = 8) -> np.ndarray:
    """y in float64, with operands cut to 10 bits of mantissa by plain arithmetic where these count, or into two
    such parts."""
    result, rest = {}, {"a": 0.0, "b": 0.0}
    for name, turn, pad, count in zip("abc", transposed, (8, 8, 3), (subgroups, 1, subgroups), strict=True):
        rows, columns = Fragment(name, shape).extent[::-1 if turn else 1]
        x = from_storage(kernel.memory(name).dtype, held[name][off:]).astype(np.float64)
        x = x.reshape(count, rows, columns + pad)[..., :columns]
        if shape.split and name != "c":
            whole, x = x, _cut(x, 0.0)
            rest[name] = _cut(whole - x, 0.0)
            rest[name] = rest[name].swapaxes(1, 2) if turn else rest[name]
        elif shape.mantissa_bits and name != "c":
            x = _cut(x, 0.5)
        result[name] = x.swapaxes(1, 2) if turn else x
    a, b = result["a"], result["b"]
    y = 2 * (a @ b + (a @ rest["b"] + rest["a"] @ b if shape.split else 0)) + result["c"]
    if transposed[2]:
        y = y.swapaxes(1, 2)
    whole = np.full((*y.shape[:2], y.shape[2] + 3), 7.0)
    whole[..., :y.shape[2]] = y
    return np.concatenate([np.full(off, 7.0), whole.reshape(-1)])


def _cut(x: np.ndarray, up: float) -> np.ndarray:
    """Numbers with 10 bits of mantissa, of which the last is rounded up from `up` on (0: never)."""
    unit = 2.0 ** (np.floor(np.log2(np.abs(x) + (x == 0))) - 10)
    return np.sign(x) * np.floor(np.abs(x) / unit + up) * unit
