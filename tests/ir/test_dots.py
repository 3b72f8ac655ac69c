"""Dot products of the parts of words: their meaning, their rewriting, and machines' own words."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parity import HERE, run_kernels
from ztorch.codegen.render import renderer
from ztorch.codegen.targets import TARGETS, Target
from ztorch.dtypes import DType, i32, i64
from ztorch.host import processor
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.ir.verify import verify
from ztorch.lower.passes import decompose

DOTS = {"dot2": (2, True), "dot4": (4, False)}  # parts of a word, and whether those of a are signed
LANES = (1, 3, 4, 8, 16, 32)


def _kernel(opcode: str, d: DType, n: int, lanes: int) -> Kernel:
    b = Builder(f"{opcode}_{d}_{lanes}")
    for name in "abc":
        b.memory(name, d, n)
    b.memory("y", d, n, access="w")
    with b.loop(0, n, lanes) as i:
        b.store("y", i, b.emit(opcode, *(b.load(name, i, lanes=lanes) for name in "abc")))
    return b.kernel()


def _buffers(d: DType, n: int) -> dict[str, np.ndarray]:
    """Random words, and those whose parts are all at the ends of their range."""
    random, info = np.random.default_rng(n), np.iinfo(d.numpy)
    held = {name: random.integers(info.min, info.max, n, d.numpy, True) for name in "abc"}
    unit = "80008000" * (d.bytes // 4), "80808080" * (d.bytes // 4)
    ends = [info.min, info.max, -1, *(int(x, 16) - (1 << d.bits) for x in unit)]
    held["a"][:25], held["b"][:25] = np.repeat(ends, 5), np.tile(ends, 5)
    return held | {"y": np.zeros(n, d.numpy)}


def _wanted(opcode: str, d: DType, held: dict[str, np.ndarray]) -> list[int]:
    """The same in Python's integers."""
    parts, signed = DOTS[opcode]
    size = d.bytes // parts

    def numbers(word: int, sign: bool) -> list[int]:
        data = word.to_bytes(d.bytes, "little", signed=True)
        return [int.from_bytes(data[k:k + size], "little", signed=sign)
                for k in range(0, d.bytes, size)]

    sums = [c + sum(x * y for x, y in zip(numbers(a, signed), numbers(b, True), strict=True))
            for a, b, c in zip(*(held[name].tolist() for name in "abc"), strict=True)]
    half = 1 << (d.bits - 1)
    return [(s + half) % (2 * half) - half for s in sums]


@pytest.mark.parametrize("opcode", DOTS)
def test_parts_are_multiplied_and_added(opcode: str) -> None:
    """By the interpreter, and rewritten for machines without the opcode."""
    for d in (i32, i64):
        kernel, held = _kernel(opcode, d, 96, 4), _buffers(d, 96)
        plain = decompose(kernel, lambda i: i.opcode != opcode, "plain")
        assert opcode not in {i.opcode for i in plain.body}
        for k in (kernel, plain):
            verify(k)
            held["y"][:] = 0
            interpret(k, held)
            assert held["y"].tolist() == _wanted(opcode, d, held)


def _machines() -> list[tuple[Target, tuple[str, ...]]]:
    """The levels of this processor, with the opcodes that each has, and its own."""
    machines: list[tuple[Target, tuple[str, ...]]] = [
        (TARGETS[name], ("dot2",)) for name in HERE]
    best = TARGETS[HERE[-1]]
    if best.byte_dots in processor.features():
        machines.append((best.with_byte_dots(), ("dot2", "dot4")))
    return machines


@pytest.mark.parametrize("opcode", DOTS)
def test_machines_give_the_same(opcode: str) -> None:
    """In vectors of any size, also those that no instruction has."""
    for target, own in _machines():
        if target.arch == "x86_64":
            assert (f"{opcode}_i32" in renderer(target).words) == (opcode in own)
        held = [_buffers(i32, 96) for _ in LANES]
        kernels = [_kernel(opcode, i32, 96, lanes) for lanes in LANES]
        run_kernels(kernels, held, target)
        for kernel, buffers in zip(kernels, held, strict=True):
            assert buffers["y"].tolist() == _wanted(opcode, i32, buffers), (target, kernel.name)
