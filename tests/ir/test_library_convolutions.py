"""Convolutions by functions of other libraries: their meaning, and the rules of their operands."""

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
from ztorch.ir.library_convolutions import call_name, results_of
from ztorch.ir.verify import verify

X, W = (2, 3, 5, 6), (4, 3, 3, 2)  # images and filters, channels, rows, columns
SIZES = {"strides": (2, 1), "dilations": (1, 2), "before": (1, 0), "after": (0, 2)}


def kernel(d: DType = f32, access: str = "w", bias: str = "b", **changes: Any) -> Kernel:
    """y = x convolved with w in the middle of larger memories, all with channels last."""
    builder = Builder("convolution")
    for name, size in (("x", 240), ("w", 90), ("b", 6)):
        builder.memory(name, d, size)
    builder.memory("y", d, 160, access=access)
    builder.library_convolution("y", 2, "x", 1, "w", 3, **{
        "x": X, "w": W, "x_pitches": (110, 1, 20, 3), "w_pitches": (1, 4, 24, 12), "y_pitches": (70, 1, 24, 4),
        "bias": bias, "bias_off": 1, "off": 1, "library": "onednn", **SIZES, **changes})
    return builder.kernel()


def part(memory: np.ndarray, start: int, extents: tuple[int, ...], pitches: tuple[int, ...]) -> np.ndarray:
    """A view of the elements of a tensor."""
    step = memory.itemsize
    return np.lib.stride_tricks.as_strided(memory[start:], extents, [p * step for p in pitches])


@pytest.mark.parametrize("d", [f32, f64], ids=str)
@pytest.mark.parametrize("bias", ["", "b"])
def test_the_meaning_is_a_convolution(d: DType, bias: str) -> None:
    r, k = np.random.default_rng(0), kernel(d, bias=bias)
    verify(k)
    arrays = {n: r.normal(size=size).astype(d.numpy) for n, size in (("x", 240), ("w", 90), ("b", 6), ("y", 160))}
    before = arrays["y"].copy()
    interpret(k, arrays)
    x = np.pad(part(arrays["x"], 1, X, (110, 1, 20, 3)).astype(float), [(0, 0), (0, 0), (1, 0), (0, 2)])
    w = part(arrays["w"], 3, W, (1, 4, 24, 12)).astype(float)
    expected = np.zeros((2, 4, 2, 6))
    for n, f, i, j in np.ndindex(expected.shape):
        expected[n, f, i, j] = (x[n, :, 2 * i:2 * i + 3, j:j + 3:2] * w[f]).sum() + (arrays["b"][1 + f] if bias else 0)
    shape, pitches = (2, 4, 2, 6), (70, 1, 24, 4)
    np.testing.assert_allclose(part(arrays["y"], 3, shape, pitches), expected, rtol=1e-5, atol=1e-6)
    part(arrays["y"], 3, shape, pitches)[...] = part(before, 3, shape, pitches)
    np.testing.assert_array_equal(arrays["y"], before)  # elements between are untouched


@pytest.mark.parametrize("changes, words", [
    ({"w": (4, 2, 3, 2)}, "3 channels of images, 2 of filters"),
    ({"strides": (1,)}, "mixes numbers of axes"),
    ({"w": (4, 3, 9, 2)}, "has no elements"),
    ({"x_pitches": (200, 1, 20, 3)}, r"x\[\d+\] is outside its 240 elements"),
    ({"right_off": 40}, "w.* is outside its 90 elements"),
    ({"bias_off": 4}, "b is no bias for 4 filters"),
    ({"bias": "y"}, "y is no bias for 4 filters"),
    ({"right": "y"}, "y is read and written at once"),
    ({"access": "r"}, "y is read-only"),
    ({"d": i32}, "has no products of i32")], ids=str)
def test_wrong_operands_are_errors(changes: dict[str, Any], words: str) -> None:
    if "right" in changes:
        k = kernel()
        [call] = k.body
        k = replace(k, body=(replace(call, attrs={**call.attrs, **changes}),))
    else:
        k = kernel(**changes)
    with pytest.raises(VerifyError, match=words):
        verify(k)


def test_it_reads_what_was_written() -> None:
    """Elements of a local memory that nothing has written are an error of the interpreter."""
    k = kernel()
    local = tuple(replace(m, space="local", access="rw") if m.name == "w" else m for m in k.memories)
    with pytest.raises(InterpretError, match="never written"):
        interpret(replace(k, memories=local), {n: np.zeros(m.size, np.float32) for n in "xby"
                                               for m in k.memories if m.name == n})


def test_names_of_calls() -> None:
    """Equal convolutions share one; sizes, places of borders and a bias tell them apart."""
    def attrs(**changes: Any) -> dict[str, Any]:
        [call] = kernel(**changes).body
        return dict(call.attrs)
    first = attrs()
    assert call_name(first) == first["call"] == attrs(off=0)["call"]
    assert len({attrs(**c)["call"] for c in ({}, {"bias": ""}, {"before": (0, 0)}, {"strides": (1, 1)})}) == 4
    assert results_of(first) == (2, 4, 2, 6)
