"""Elementwise routines, reductions, networks and updates beside float64 of NumPy, with strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.library.devices import DEVICES, Operand, close, library, sampled
from ztorch.compile.pipeline import build
from ztorch.errors import ConfigError, ShapeError, UnknownName, Unsupported

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


# -- elementwise -------------------------------------------------------------------------------------


@sampled
def test_unary(name: str) -> None:
    own, x = library(name), normal(3, 4)
    source, result = Operand(own, x, (9, 2), 3), Operand(own, x, (1, 5))  # rows to columns
    own.unary("exp", source.tensor, result.tensor)
    close(result.now(), np.exp(x.astype(float)), terms=4)
    own.unary("negative", source.tensor, source.tensor)  # in place
    close(source.now(), -x)


@sampled
def test_binary(name: str) -> None:
    own, x, y = library(name), normal(3, 4), normal(4)
    a, b = Operand(own, x, (6, 1)), Operand(own, y, (2,))
    result, flags = Operand(own, x, (4, 1)), Operand(own, np.zeros((3, 4), bool), (5, 1))
    own.binary("multiply", a.tensor, b.tensor, result.tensor)
    close(result.now(), x.astype(float) * y)
    own.binary("less", a.tensor, b.tensor, flags.tensor)
    close(flags.now(), x < y)


def test_attributes_and_dtypes() -> None:
    own, x = library("cpu"), normal(5)
    a, whole = Operand(own, x * 9), Operand(own, np.zeros(5, np.int32))
    own.unary("cast", a.tensor, whole.tensor, dtype="int32")
    close(whole.now(), (x * 9).astype(np.int32))
    own.unary("leaky_relu", a.tensor, a.tensor, negative_slope=0.5)
    close(a.now(), np.where(x > 0, x, 0.5 * x) * 9.0)
    for dtype in ("float64", "float16", "int8", "uint64"):
        n = np.array([1, 2, 5], dtype)
        t = Operand(own, n)
        own.binary("add", t.tensor, t.tensor, t.tensor)
        close(t.now(), n * 2)


def test_an_operand_may_repeat_elements() -> None:
    own, x = library("cpu"), normal(4)
    wide = Operand(own, x)
    again = wide.buffer.tensor((3, 4), strides=(0, 1))
    result = Operand(own, np.zeros((3, 4), np.float32))
    own.unary("abs", again, result.tensor)
    close(result.now(), np.broadcast_to(abs(x), (3, 4)))
    with pytest.raises(ConfigError, match="several of its elements would share a place"):
        own.unary("abs", result.tensor, again)
    crossing = wide.buffer.tensor((2, 3), strides=(2, 1))  # the last of a row is the first of the next
    with pytest.raises(ConfigError, match="along axis 0 are 2 apart, and each holds 3"):
        own.unary("abs", crossing, result.buffer.tensor((2, 3)))


def test_wrong_elementwise_calls() -> None:
    own, x = library("cpu"), Operand(library("cpu"), normal(3))
    with pytest.raises(UnknownName, match="unknown op of 1 tensor 'expp'; did you mean 'exp'"):
        own.unary("expp", x.tensor, x.tensor)
    with pytest.raises(UnknownName, match="unknown op of 2 tensors 'exp'"):
        own.binary("exp", x.tensor, x.tensor, x.tensor)
    with pytest.raises(ShapeError, match=r"add gives float32\[3\], and the result is described as float32\[2\]"):
        own.binary("add", x.tensor, x.tensor, x.buffer.tensor((2,)))
    with pytest.raises(ConfigError, match=r"cannot begin at byte 2"):
        x.buffer.tensor((1,), offset=2)


# -- networks ----------------------------------------------------------------------------------------


def convolved(x: np.ndarray, k: np.ndarray, stride: tuple[int, int], pad: Any, dilation: tuple[int, int],
              groups: int) -> np.ndarray:
    """NHWC by HWIO in float64, a window at a time."""
    x = np.pad(x.astype(float), ((0, 0), *pad, (0, 0)))
    h, w, into, filters = k.shape
    rows, columns = ((n - (m - 1) * d - 1) // s + 1 for n, m, d, s in zip(
        x.shape[1:3], (h, w), dilation, stride, strict=True))
    y = np.zeros((len(x), rows, columns, filters))
    for i, j, f in np.ndindex(rows, columns, filters):
        g = f // (filters // groups) * into
        seen = x[:, i * stride[0]:, j * stride[1]:, g:g + into][
            :, :(h - 1) * dilation[0] + 1:dilation[0], :(w - 1) * dilation[1] + 1:dilation[1]]
        y[:, i, j, f] = (seen * k[..., f]).sum((1, 2, 3))
    return y


CONVOLUTIONS = [
    {}, {"padding": 1, "stride": 2}, {"padding": (1, 2), "dilation": (2, 1), "layout": "NCHW"},
    {"padding": ((0, 1), (2, 0)), "stride": (2, 1), "kernel_layout": "KCRS"},
    {"groups": 2, "layout": "NCHW", "kernel_layout": "KCRS", "padding": "same"},
    {"groups": 4, "padding": "valid", "dilation": 2},
]


def try_convolution(name: str, case: dict[str, Any]) -> None:
    own = library(name)
    groups, size = case.get("groups", 1), (3, 2)
    stride, dilation = (np.broadcast_to(case.get(n, 1), 2) for n in ("stride", "dilation"))
    padding = case.get("padding", 0)
    if isinstance(padding, str):
        full = [(n - 1) * int(d) for n, d in zip(size, dilation, strict=True)]
        pad = [(n // 2, n - n // 2) if padding == "same" else (0, 0) for n in full]
    else:
        pad = [tuple(np.broadcast_to(p, 2)) for p in np.broadcast_to(padding, (2,))] if np.ndim(
            padding) < 2 else list(padding)
    x, k, bias = normal(2, 7, 6, 4), normal(*size, 4 // groups, 8), normal(8)
    want = convolved(x, k, stride, pad, dilation, groups) + bias
    first = case.get("layout") == "NCHW"
    outer = case.get("kernel_layout") == "KCRS"
    images = x.transpose(0, 3, 1, 2) if first else x
    filters = k.transpose(3, 2, 0, 1) if outer else k
    result = np.zeros(want.transpose(0, 3, 1, 2).shape if first else want.shape, np.float32)
    strides = np.array(np.ascontiguousarray(images).strides) // 4 + np.array([11, 0, 0, 0])
    there = [Operand(own, np.ascontiguousarray(images), tuple(strides)), Operand(own, np.ascontiguousarray(filters)),
             Operand(own, result, None, 1), Operand(own, bias, (2,))]
    own.conv2d_forward(*(t.tensor for t in there), **case)
    close(there[2].now(), want.transpose(0, 3, 1, 2) if first else want, terms=24)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_conv2d_forward(case: dict[str, Any]) -> None:
    try_convolution("cpu", case)


def test_conv2d_forward_of_integers() -> None:
    own = library("cpu")
    x, k = (RNG.integers(-5, 6, s).astype(np.int32) for s in ((2, 5, 4, 2), (2, 3, 2, 3)))
    want = convolved(x, k, (1, 1), [(0, 0), (0, 0)], (1, 1), 1)
    there = [Operand(own, a) for a in (x, k, np.zeros(want.shape, np.int32))]
    own.conv2d_forward(*(t.tensor for t in there))
    close(there[2].now(), want)


def test_dtypes_that_no_device_supports() -> None:
    own = library("cpu")
    t = own.alloc(64).tensor((1, 2, 2, 2), "int16")
    flags = own.alloc(64).tensor((2, 2), "bool")
    for call, message in ((lambda: own.softmax(t, t), "cpu cannot do softmax of int16: it is for floats"),
                          (lambda: own.attention(t, t, t, t), "cpu cannot do attention of int16"),
                          (lambda: own.reduce("sum", flags, flags), "cpu cannot do reduce sum of bool"),
                          (lambda: own.gemm(2, 2, 2, t.part, t.part, t.part, dtype="bool"), "gemm of bool")):
        with pytest.raises(Unsupported, match=message):
            call()


@sampled
def test_conv2d_forward_on_each_device(name: str) -> None:
    try_convolution(name, CONVOLUTIONS[4])


@pytest.mark.parametrize(("name", "options"), [
    ("cpu", {"causal": True}), *((name, {"scale": 0.3, "mask": True}) for name in DEVICES)], ids=str)
def test_attention(name: str, options: dict[str, Any]) -> None:
    """Queries lie with the heads behind the positions; two of their heads share one of the keys."""
    own = library(name)
    q, k, v = normal(2, 5, 4, 3), normal(2, 2, 5, 3), normal(2, 2, 5, 6)
    options = dict(options)
    mask = RNG.random((1, 1, 5, 5)) < 0.6 if options.pop("mask", False) else None
    if mask is not None:
        mask[..., 0] = True
    heads = q.transpose(0, 2, 1, 3).astype(float)
    scores = heads @ np.repeat(k, 2, 1).transpose(0, 1, 3, 2) * options.get("scale", 3 ** -0.5)
    shown = np.tril(np.ones((5, 5), bool)) if options.get("causal") else mask
    e = np.exp(np.where(shown, scores, -np.inf))
    want = e / e.sum(-1, keepdims=True) @ np.repeat(v, 2, 1)
    there = [Operand(own, q), Operand(own, k), Operand(own, v), Operand(own, np.zeros((2, 5, 4, 6), np.float32))]
    queries = there[0].buffer.tensor((2, 4, 5, 3), strides=(60, 3, 12, 1))
    result = there[3].buffer.tensor((2, 4, 5, 6), strides=(120, 6, 24, 1))
    if mask is not None:
        options["mask"] = Operand(own, mask).tensor
    own.attention(queries, there[1].tensor, there[2].tensor, result, **options)
    close(there[3].now(), want.transpose(0, 2, 1, 3), terms=10)


@pytest.mark.parametrize(("name", "training"), [*((name, True) for name in DEVICES), ("cpu", False)])
def test_batch_norm(name: str, training: bool) -> None:
    own, x = library(name), normal(4, 3, 5) + 2
    mean, variance, scale, offset = (abs(normal(3)) + 0.5 for _ in range(4))
    source = Operand(own, x, (17, 5, 1))
    m, v, s, o = (Operand(own, a, (2,)) for a in (mean, variance, scale, offset))
    own.batch_norm(source.tensor, source.tensor, m.tensor, v.tensor, s.tensor, o.tensor, axis=1,
                   epsilon=0.01, training=training, momentum=0.9)
    wide = x.astype(float)
    now = (wide.mean((0, 2)), wide.var((0, 2))) if training else (mean, variance)
    centered = (wide - now[0][:, None]) / np.sqrt(now[1][:, None] + 0.01)
    close(source.now(), centered * scale[:, None] + offset[:, None], terms=20)
    for t, old, new in ((m, mean, now[0]), (v, variance, now[1])):
        close(t.now(), 0.9 * old + 0.1 * new if training else old, terms=20)


# -- updates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "gaps"), [
    ("cpu", True), ("webgpu:0", True), *((name, False) for name in DEVICES)])
def test_fused_adam_step(name: str, gaps: bool) -> None:
    """Four tensors, one of them of no elements and one perhaps with gaps, over three steps with other rates."""
    own, shapes = library(name), ((3, 4), (7,), (0,), (2, 2))
    lists = [[normal(*s) for s in shapes], [normal(*s) for s in shapes],
             *([np.zeros(s, np.float32) for s in shapes] for _ in range(2))]
    there = [[Operand(own, a, (3, 1) if gaps and a.shape == (2, 2) else None) for a in arrays] for arrays in lists]
    exact = [[a.astype(float) for a in arrays] for arrays in lists]
    for step, rate in ((1, 0.1), (2, 0.1), (3, 0.01)):
        own.fused_adam_step(*([t.tensor for t in tensors] for tensors in there), step=step,
                            learning_rate=rate, weight_decay=0.01)
        for w, g, m, v in zip(*exact, strict=True):
            m += (g - m) * 0.1
            v += (g * g - v) * 0.001
            scaled = rate * np.sqrt(1 - 0.999 ** step) / (1 - 0.9 ** step)
            w -= w * rate * 0.01 + m * scaled / (np.sqrt(v) + 1e-7)
        for tensors, arrays in zip(there, exact, strict=True):
            for t, a in zip(tensors, arrays, strict=True):
                close(t.now(), a, terms=20)
    with pytest.raises(ConfigError, match="4 weights, 4 gradients, 4 m and 3 v"):
        own.fused_adam_step(*([t.tensor for t in tensors] for tensors in there[:3]),
                            [t.tensor for t in there[3][:3]], step=1)


def test_one_launch_updates_all_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one before it computes the step and the rate, whatever the number of tensors."""
    library("opencl:0")  # or a skip
    own, launches = zt.backends.BackendBuilder("opencl", device_id=0).build(), []

    def spied(*arguments: Any) -> Any:
        running = build(*arguments)
        launches.append(len(running.functions["call"].launches))
        return running

    monkeypatch.setattr("ztorch.library.programs.build", spied)
    lists = [[Operand(own, np.ones(n, np.float32)).tensor for n in (5, 70, 33, 1)] for _ in range(4)]
    own.fused_adam_step(*lists, step=1)
    own.fused_adam_step(*lists, step=2, learning_rate=0.1)
    assert launches == [2]
