"""Operators that create tensors from shapes and numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ztorch.dtypes import f64
from ztorch.interchange.torch_export.translation import OperatorCall, Result, call


@call("sym_size.int")
def _size(c: OperatorCall) -> Result:
    shape = c.node("Shape", c.x())
    return c.node("Gather", shape, c.constant(np.int64(c.get("dim"))), axis=0)


@call("sym_numel")
def _count(c: OperatorCall) -> Result:
    return c.node("Size", c.x())


def _filled(c: OperatorCall, shape: str) -> str:
    kind = c.op.removeprefix("new_").removesuffix("_like").removesuffix("_permuted")
    value = {"zeros": 0, "ones": 1, "empty": 0}.get(kind)
    value = c.get("fill_value", value)
    d = c.result.dtype
    if isinstance(value, (bool, int, float)):
        array = np.array([value], d.working)
        if d.in_numpy:
            return c.node("ConstantOfShape", shape, value=array)
    return c.node("Expand", c.number(value, d), shape)


@call("zeros", "ones", "full", "new_zeros", "new_ones", "new_full", "empty.memory_format",
      "empty_permuted", "new_empty")
def _fill(c: OperatorCall) -> Result:
    return _filled(c, c.ints(*c.get("size")))


@call("zeros_like", "ones_like", "full_like", "empty_like")
def _fill_like(c: OperatorCall) -> Result:
    return _filled(c, c.node("Shape", c.x()))


@call("scalar_tensor")
def _scalar(c: OperatorCall) -> Result:
    return c.number(c.get("s"), c.result.dtype)


@call("arange", "arange.start", "arange.start_step")
def _range(c: OperatorCall) -> Result:
    d = c.result.dtype
    return c.node("Range", c.number(c.get("start", 0), d), c.number(c.get("end"), d),
                  c.number(c.get("step", 1), d))


@call("linspace")
def _linspace(c: OperatorCall) -> Result:
    return _as_result(c, _between(c))


def _between(c: OperatorCall) -> str:
    """Floats at equal distances, counted from the nearer end as PyTorch does, so that both ends are
    exact."""
    d = c.result.dtype if c.result.dtype.is_float else f64
    zero, one = c.number(0, d), c.number(1, d)
    count = c.number(c.get("steps"), d)
    index = c.node("Range", zero, count, one)
    start, end = c.number(c.get("start"), d), c.number(c.get("end"), d)
    last = c.node("Sub", count, one)
    step = c.node("Div", c.node("Sub", end, start), c.node("Max", last, one))
    from_end = c.node("Sub", last, index)
    return c.node("Where", c.node("LessOrEqual", index, from_end),
                  c.node("Add", start, c.node("Mul", index, step)),
                  c.node("Sub", end, c.node("Mul", from_end, step)))


@call("logspace")
def _powers_between(c: OperatorCall) -> Result:
    exponents, d = _between(c), c.result.dtype
    base = c.number(c.get("base", 10.0), d if d.is_float else f64)
    return _as_result(c, c.node("Pow", base, exponents))


def _as_result(c: OperatorCall, y: str) -> str:
    d = c.result.dtype
    return y if d.is_float else c.node("Cast", y, to=d.onnx)


# -- windows and frequencies -----------------------------------------------------------------------


def _cosines(*weights: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda positions: np.cos(2 * np.pi * np.multiply.outer(positions, np.arange(
        len(weights)))) @ np.array(weights)


_WINDOWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # functions of positions from 0 to 1
    "hann_window": _cosines(0.5, -0.5), "hamming_window": _cosines(0.54, -0.46),
    "blackman_window": _cosines(0.42, -0.5, 0.08),
    "bartlett_window": lambda positions: 1 - np.abs(2 * positions - 1)}


@call(*(f"{op}{form}" for op in (*_WINDOWS, "kaiser_window") for form in ("", ".periodic")),
      "kaiser_window.beta")
def _window(c: OperatorCall) -> Result:
    count = c.get("window_length")
    if not isinstance(count, int):
        c.unsupported("a window of an open length")
    positions = np.arange(count) / max(count - (not c.get("periodic", True)), 1)
    if c.op == "kaiser_window":
        beta = c.get("beta", 12.0)
        y = np.i0(beta * np.sqrt(np.maximum(1 - (2 * positions - 1) ** 2, 0))) / np.i0(beta)
    else:
        y = _WINDOWS[c.op](positions)
    return c.constant((np.ones(1) if count == 1 else y).astype(c.result.dtype.working))


@call("fft_fftfreq", "fft_rfftfreq")
def _frequencies(c: OperatorCall) -> Result:
    count, step = c.get("n"), c.get("d", 1.0)
    if not isinstance(count, int):
        c.unsupported("frequencies of an open count")
    frequencies = (np.fft.fftfreq if c.op == "fft_fftfreq" else np.fft.rfftfreq)(count, step)
    return c.constant(frequencies.astype(c.result.dtype.working))
