"""Complex tensors, which are pairs of floats along a last axis, and Fourier transforms."""

from __future__ import annotations

import math

import numpy as np

from ztorch.interchange.torch_export.translation import (
    CALLS,
    CallTensor,
    OperatorCall,
    Result,
    call,
    key_of,
)

# -- parts -----------------------------------------------------------------------------------------


def _parts(c: OperatorCall, x: CallTensor) -> tuple[str, str]:
    """The real and the imaginary numbers of a tensor."""
    if not x.is_complex:
        return x.name, c.node("Sub", x.name, x.name)
    real, imag = (c.node("Gather", x.name, c.constant(np.int64(k)), axis=-1) for k in (0, 1))
    return real, imag


def _pair(c: OperatorCall, real: str, imag: str) -> str:
    """Numbers as pairs."""
    return c.node("Concat", *(c.node("Unsqueeze", part, c.ints(-1)) for part in (real, imag)),
                  axis=-1)


@call("view_as_real", "view_as_complex", "resolve_conj", "resolve_neg", of_complex=True)
def _same(c: OperatorCall) -> Result:
    return c.x()


@call("_to_copy", of_complex=True)
def _cast(c: OperatorCall) -> Result:
    x = c.tensor()
    if not c.result.is_complex:
        return c.cast(CallTensor(_parts(c, x)[0], x.dtype, x.dims), c.result.dtype)
    parts = x if x.is_complex else CallTensor(_pair(c, *_parts(c, x)), x.dtype, x.dims)
    return c.cast(parts, c.result.dtype)


@call("complex", of_complex=True)
def _of_parts(c: OperatorCall) -> Result:
    return _pair(c, c.x("real"), c.x("imag"))


@call("polar", of_complex=True)
def _polar(c: OperatorCall) -> Result:
    size, angle = c.x("abs"), c.x("angle")
    return _pair(c, *(c.node("Mul", size, c.node(op, angle)) for op in ("Cos", "Sin")))


@call("real", "imag", of_complex=True)
def _part(c: OperatorCall) -> Result:
    return _parts(c, c.tensor())[c.op == "imag"]


@call("_conj", "conj_physical", "_conj_physical", "conj", of_complex=True)
def _conjugate(c: OperatorCall) -> Result:
    real, imag = _parts(c, c.tensor())
    return _pair(c, real, c.node("Neg", imag))


@call("abs", of_complex=True)
def _size(c: OperatorCall) -> Result:
    return c.node("ReduceL2", c.x(), c.ints(-1), keepdims=0)


@call("angle", of_complex=True)
def _angle(c: OperatorCall) -> Result:
    real, imag = _parts(c, c.tensor())
    return c.nodes("Atan2", [imag, real], 1, domain="ztorch")[0]


@call("mul.Tensor", "div.Tensor", of_complex=True)
def _product(c: OperatorCall) -> Result:
    x, y = c.tensor(), c.get("other")
    if isinstance(y, CallTensor) and y.is_complex:
        (a, b), (u, v) = _parts(c, x), _parts(c, y)
        if c.op == "div":  # by the conjugate, and by its square
            square = c.node("ReduceSumSquare", y.name, c.ints(-1), keepdims=0)
            u, v = c.node("Div", u, square), c.node("Neg", c.node("Div", v, square))
        return _pair(c, c.node("Sub", c.node("Mul", a, u), c.node("Mul", b, v)),
                     c.node("Add", c.node("Mul", a, v), c.node("Mul", b, u)))
    op, factor = c.op.capitalize(), (
        c.cast(y, x.dtype) if isinstance(y, CallTensor) else c.number(y, x.dtype))
    return _pair(c, *(c.node(op, part, factor) for part in _parts(c, x)))


@call("add.Tensor", "sub.Tensor", of_complex=True)
def _sum(c: OperatorCall) -> Result:
    x, y, alpha = c.tensor(), c.get("other"), c.get("alpha", 1)
    op, d = c.op.capitalize(), x.dtype
    real, imag = _parts(c, x)
    if not isinstance(y, CallTensor):
        return _pair(c, c.node(op, real, c.number(y * alpha, d)), imag)
    added = _parts(c, y)
    if alpha != 1:
        added = (c.node("Mul", added[0], c.number(alpha, d)),
                 c.node("Mul", added[1], c.number(alpha, d)))
    return _pair(c, c.node(op, real, added[0]), c.node(op, imag, added[1]))


_LINEAR = [
    "neg", "sum", "sum.dim_IntList", "mean", "mean.dim", "view",
    "reshape", "permute", "transpose.int", "unsqueeze", "squeeze.dim", "squeeze.dims",
    "flatten.using_ints", "select.int", "slice.Tensor", "cat", "stack", "roll", "flip",
    "expand", "repeat", "clone", "contiguous", "alias", "detach", "constant_pad_nd",
    "index_select", "split.Tensor", "unbind.int"]


@call(*_LINEAR, of_complex=True)
def _each_part(c: OperatorCall) -> Result:
    """Calls that move or add up numbers do so with both parts."""
    tensors = c.tensors
    split = {x.name: _parts(c, x) for x in tensors if x.is_complex}
    real, imag = (CALLS[key_of(c.spec)](c.with_tensors({
        x.name: CallTensor(split[x.name][k], x.dtype, x.dims) for x in tensors if x.name in split}))
        for k in (0, 1))
    if isinstance(real, str) and isinstance(imag, str):
        return _pair(c, real, imag)
    return [_pair(c, a, b) for a, b in zip(real, imag, strict=True)]


# -- transforms ------------------------------------------------------------------------------------


def _transformed(c: OperatorCall, x: str, axis: int, length: int, inverse: bool,
                 onesided: bool = False) -> str:
    """The transform along an axis of pairs, or of numbers as an axis of one; `length` is that of
    the whole signal. The inverse is divided by it."""
    return c.node("DFT", x, c.constant(np.int64(length)), c.constant(np.int64(axis)),
                  inverse=int(inverse), onesided=int(onesided))


def _scaled(c: OperatorCall, y: str, lengths: list[int], inverse: bool, norm: str) -> str:
    """Divided as `norm` says."""
    count = math.prod(lengths)
    factors = {"backward": 1.0, "ortho": count ** (0.5 if inverse else -0.5),
               "forward": float(count) if inverse else 1.0 / count}
    if norm not in factors:
        c.unsupported(f"norm={norm!r}")
    factor = factors[norm]
    return y if factor == 1.0 else c.node("Mul", y, c.number(factor, c.result.dtype))


_FORMS = ("", "2", "n")  # along one axis, the last two, or several


@call(*(f"fft_{way}fft{form}" for way in ("", "i", "r", "ir") for form in _FORMS), of_complex=True)
def _fourier(c: OperatorCall) -> Result:
    return _along_axes(c)


@call("fft_irfft", "fft_irfft2", "fft_irfftn")
def _real_fourier(c: OperatorCall) -> Result:
    return _along_axes(c)


def _along_axes(c: OperatorCall) -> str:
    x = c.tensor()
    inverse, real = c.op.startswith("fft_i"), "rfft" in c.op
    axes, lengths = _axes(c, x, real and inverse)
    y = x.name if x.is_complex else c.node("Unsqueeze", x.name, c.ints(-1))
    order = list(zip(axes, lengths, strict=True))
    if real and inverse:
        for axis, length in order[:-1]:
            y = _transformed(c, y, axis, length, True)
        y = c.node("Squeeze", _transformed(c, y, *order[-1], True, onesided=True), c.ints(-1))
    else:
        for k, (axis, length) in enumerate(reversed(order)):
            y = _transformed(c, y, axis, length, inverse, onesided=real and k == 0)
    return _scaled(c, y, lengths, inverse, c.get("norm", "backward"))


@call("_fft_r2c", "_fft_c2c", "_fft_c2r", of_complex=True)
def _parts_of_fourier(c: OperatorCall) -> Result:
    """The transforms that run_decompositions() leaves: along several axes, a halved one last."""
    x, halved = c.tensor(), c.op == "_fft_c2r" or bool(c.get("onesided", False))
    inverse = c.op == "_fft_c2r" or not c.get("forward", True)
    axes = [axis % x.rank for axis in c.integers("dim")]
    lengths = [x.dims[axis] for axis in axes]
    if c.op == "_fft_c2r":
        lengths[-1] = c.get("last_dim_size")
    if not all(isinstance(n, int) for n in lengths):
        c.unsupported("a transform along an axis that is open; export it with a fixed size")
    order = list(zip(axes, [int(n) for n in lengths], strict=True))
    y = x.name if x.is_complex else c.node("Unsqueeze", x.name, c.ints(-1))
    for k, (axis, n) in enumerate(order if inverse else reversed(order)):
        last = k == (len(order) - 1 if inverse else 0)
        y = _transformed(c, y, axis, n, inverse, halved and last)
    y = c.node("Squeeze", y, c.ints(-1)) if c.op == "_fft_c2r" else y
    norms = ("backward", "ortho", "forward")  # of no divisor, of the root, of all
    return _scaled(c, y, [n for _, n in order], inverse,
                   norms[::-1 if inverse else 1][c.get("normalization")])


def _axes(c: OperatorCall, x: CallTensor, halved: bool) -> tuple[list[int], list[int]]:
    """The axes that are transformed, and the length of the signal along each."""
    if c.op.endswith("fft"):
        axes, lengths = [c.get("dim", -1)], [c.get("n")]
    else:
        lengths = c.get("s") or []
        count = len(lengths) or x.rank
        axes = c.get("dim") or ([-2, -1] if c.op.endswith("2") else list(range(-count, 0)))
        lengths = list(lengths) or [None] * len(axes)
    axes = [axis % x.rank for axis in axes]
    sizes = [x.dims[axis] for axis in axes]
    for k, size in enumerate(sizes):
        if lengths[k] is None and isinstance(size, int):
            lengths[k] = 2 * (size - 1) if halved and k == len(sizes) - 1 else size
    if not all(isinstance(n, int) for n in lengths):
        c.unsupported("a transform along an axis that is open; export it with a fixed size")
    return axes, lengths


def _shifted(c: OperatorCall, x: CallTensor) -> str:
    axes = c.get("dim")
    axes = list(range(x.rank)) if axes is None else [a % x.rank for a in axes]
    y = x.name
    for axis in axes:
        size = x.dims[axis]
        if not isinstance(size, int):
            c.unsupported("a shift along an axis that is open")
        moved = size // 2 if c.op == "fft_fftshift" else -(-size // 2)
        order = np.roll(np.arange(size), moved)
        y = c.node("Gather", y, c.constant(order), axis=axis)
    return y


@call("fft_fftshift", "fft_ifftshift", of_complex=True)
def _shift_pairs(c: OperatorCall) -> Result:
    return _shifted(c, c.tensor())


@call("fft_fftshift", "fft_ifftshift")
def _shift(c: OperatorCall) -> Result:
    return _shifted(c, c.tensor())


@call("stft", of_complex=True)
def _short_time(c: OperatorCall) -> Result:
    x, length, window = c.tensor(), c.get("n_fft"), c.get("window")
    size = c.get("win_length", length)
    if c.get("align_to_window") or not c.get("return_complex"):
        c.unsupported("align_to_window, or results that are no complex numbers")
    shape = c.constant(np.ones(size, x.dtype.working)) if window is None else window.name
    if size < length:
        before = (length - size) // 2
        shape = c.node("Pad", shape, c.ints(before, length - size - before))
    signal = c.node("Unsqueeze", x.name if x.rank == 2 else c.node("Unsqueeze", x.name, c.ints(0)),
                    c.ints(-1))
    onesided = c.get("onesided")
    frames = c.node("STFT", signal, c.constant(np.int64(c.get("hop_length", length // 4))), shape,
                    c.constant(np.int64(length)), onesided=int(onesided is None or onesided))
    y = c.node("Transpose", frames, perm=[0, 2, 1, 3])
    y = y if x.rank == 2 else c.node("Squeeze", y, c.ints(0))
    return c.node("Mul", y, c.number(length ** -0.5, x.dtype)) if c.get("normalized") else y


@call("hann_window", "hann_window.periodic", "hamming_window", "hamming_window.periodic")
def _window(c: OperatorCall) -> Result:
    count = c.get("window_length")
    if not isinstance(count, int):
        c.unsupported("a window of an open length")
    turns = np.arange(count) / max(count - (not c.get("periodic", True)), 1)
    base = 0.5 if c.op == "hann_window" else 0.54
    return c.constant((base - (1 - base) * np.cos(2 * np.pi * turns)).astype(
        c.result.dtype.working))
