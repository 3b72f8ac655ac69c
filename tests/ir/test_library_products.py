"""Products by functions of other libraries: their meaning, and the rules of their operands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ztorch.dtypes import DType, f32, f64, i32
from ztorch.errors import InterpretError, VerifyError
from ztorch.ir.builder import Builder
from ztorch.ir.interpret import interpret
from ztorch.ir.kernel import Kernel
from ztorch.ir.verify import verify

M, N, K = 3, 5, 4


def kernel(d: DType = f32, a: bool = False, b: bool = False, access: str = "w", right: str = "y",
           **changes: Any) -> Kernel:
    """c = a @ b in the middle of larger memories, with operands that may be transposed."""
    builder = Builder("product")
    for name, size in (("x", 40), ("y", 60)):
        builder.memory(name, d, size)
    builder.memory("z", d, 60, access=access)
    builder.library_product("z", 2, "x", 1, right, 3, **{
        "pitch": 7, "source_pitch": 6, "source_transposed": a, "right_pitch": 8, "right_transposed": b,
        "off": 1, "library": "openblas", "m": M, "n": N, "k": K, **changes})
    return builder.kernel()


def part(x: np.ndarray, start: int, pitch: int, rows: int, columns: int, transposed: bool) -> np.ndarray:
    lines, length = (columns, rows) if transposed else (rows, columns)
    lying = x[start + np.arange(lines)[:, None] * pitch + np.arange(length)]
    return lying.T if transposed else lying


@pytest.mark.parametrize("d", [f32, f64], ids=str)
@pytest.mark.parametrize("a", [False, True])
@pytest.mark.parametrize("b", [False, True])
def test_the_meaning_is_a_product(d: DType, a: bool, b: bool) -> None:
    r, k = np.random.default_rng(0), kernel(d, a, b)
    verify(k)
    x, y, z = (r.normal(size=n).astype(d.numpy) for n in (40, 60, 60))
    before = z.copy()
    interpret(k, {"x": x, "y": y, "z": z})
    left, right = part(x, 1, 6, M, K, a).astype(float), part(y, 3, 8, K, N, b).astype(float)
    np.testing.assert_allclose(part(z, 3, 7, M, N, False), left @ right, rtol=1e-6)
    part_of_z = np.zeros(60, bool)
    part_of_z[3 + np.arange(M)[:, None] * 7 + np.arange(N)] = True
    np.testing.assert_array_equal(z[~part_of_z], before[~part_of_z])


@pytest.mark.parametrize("changes, words", [
    ({"pitch": 4}, "lines of 5 elements overlap at pitch 4"),
    ({"source_pitch": 3}, "lines of 4 elements overlap"),
    ({"m": 8}, r"x\[46\] is outside its 40 elements"),
    ({"right_off": 40}, "y.* is outside its 60 elements"),
    ({"right": "z"}, "z is read and written at once"),
    ({"n": 0}, "has no elements"),
    ({"access": "r"}, "z is read-only"),
    ({"d": i32}, "has no products of i32")], ids=str)
def test_wrong_operands_are_errors(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(VerifyError, match=words):
        verify(kernel(**changes))


def test_it_reads_what_was_written() -> None:
    """Elements of a local memory that nothing has written are an error of the interpreter."""
    k = kernel()
    local = tuple(replace(m, space="local", access="rw") if m.name == "x" else m for m in k.memories)
    with pytest.raises(InterpretError, match="never written"):
        interpret(replace(k, memories=local), {n: np.zeros(60, np.float32) for n in "yz"})
