"""Windows and ops built from them: compared with PyTorch, at odd shapes, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import references
from tests.cases.grouping import together
from tests.parity import HERE, Job, agree, compiled
from ztorch import ops
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value, topological
from ztorch.lower.region import is_view

random = np.random.default_rng(4)


class Tried:
    """A function of some arrays, with the gradients of the sum of its output * slope."""

    def __init__(self, function: Any, *arrays: np.ndarray):
        self.function, self.arrays = function, arrays
        self.slope = random.normal(size=self.graph("float64")[0].outputs["y"].shape)

    def graph(self, d: str) -> tuple[Graph, list[Value]]:
        args = [leaf("input", f"x{k}", a.shape, d) for k, a in enumerate(self.arrays)]
        return Graph({"y": self.function(*args)}), args

    def job(self, d: str) -> Job:
        graph, args = self.graph(d)
        y = graph.outputs["y"]
        slope = leaf("input", "slope", y.shape, d)
        result = gradients(ops.sum(y * slope), args)
        feeds = dict(zip([*args, slope], [*self.arrays, self.slope], strict=True))
        return Job(Graph({"y": y, **{f"d{k}": g for k, g in enumerate(result)}}),
                   {v: a.astype(d) for v, a in feeds.items()})

    def is_torchs(self, function: Any) -> None:
        """float64 by the oracle equals PyTorch; compiled float32 equals float64."""
        torch = references.torch()
        tensors = [torch.tensor(a, requires_grad=True) for a in self.arrays]
        y = function(torch.nn.functional, *tensors)
        (y * torch.tensor(self.slope)).sum().backward()
        for got, want in zip(self.job("float64").oracle(), [y, *(t.grad for t in tensors)],
                             strict=True):
            np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-9, atol=1e-11)
        job = self.job("float32")
        for machine in ("scalar", HERE[-1]):
            agree(job, compiled(job, machine), terms=100)


def first(t: Any) -> Any:
    """Channels second, as PyTorch has them."""
    return t.movedim(-1, 1)


def last(t: Any) -> Any:
    return t.movedim(1, -1)


def kernel_first(t: Any) -> Any:
    return t.movedim((-1, -2), (0, 1))


# x, kernel, arguments of ours
CONV = {
    "plain": ((2, 7, 9, 3), (3, 3, 3, 5), {}),
    "one place": ((2, 5, 4, 3), (1, 1, 3, 5), {}),
    "one place, stride": ((2, 5, 4, 3), (1, 1, 3, 5), {"stride": (2, 3)}),
    "stride": ((2, 9, 8, 2), (3, 2, 2, 3), {"stride": (2, 3)}),
    "side by side": ((2, 8, 9, 2), (2, 3, 2, 3), {"stride": (2, 3)}),
    "dilation": ((1, 9, 10, 2), (3, 2, 2, 3), {"dilation": (2, 4)}),
    "stride and dilation": ((1, 11, 10, 2), (3, 2, 2, 3), {"stride": 3, "dilation": 2}),
    "pairs": ((1, 5, 6, 2), (3, 4, 2, 3), {"padding": ((2, 1), (0, 3)), "stride": (1, 2)}),
    "groups": ((2, 6, 5, 6), (3, 2, 2, 9), {"groups": 3, "stride": (2, 1)}),
    "depthwise": ((2, 6, 5, 7), (3, 3, 1, 7), {"groups": 7}),
    "depthwise, three each": ((2, 6, 5, 4), (2, 3, 1, 12), {"groups": 4, "dilation": 2}),
    "a sequence": ((3, 17, 4), (5, 4, 6), {"stride": 2}),
    "three axes": ((1, 4, 5, 6, 2), (2, 3, 2, 2, 3), {"stride": (1, 2, 1)}),
    "one channel": ((2, 12, 12, 1), (5, 5, 1, 6), {}),
    "wide": ((2, 6, 8, 9), (3, 3, 9, 10), {"padding": ((1, 1), (1, 1))}),
    "wide, dilation": ((1, 5, 8, 8), (2, 3, 8, 9), {"padding": ((1, 0), (0, 2)),
                                                    "dilation": (1, 2)}),
    "wide, far beyond": ((1, 4, 4, 8), (2, 2, 8, 8), {"padding": ((2, 0), (0, 1))}),
    "wide, a sequence": ((2, 17, 8), (5, 8, 6), {}),
    "wide, depthwise": ((2, 6, 12, 9), (3, 3, 1, 9), {"groups": 9}),
    "wide, depthwise, stride": ((2, 7, 8, 9), (3, 3, 1, 9), {
        "groups": 9, "stride": (2, 3), "padding": ((1, 1), (0, 1))}),
    "wide, depthwise, apart": ((1, 11, 9, 8), (2, 1, 1, 8), {"groups": 8, "stride": 4}),
    "wide, groups": ((2, 6, 5, 8), (3, 3, 4, 6), {"groups": 2, "padding": ((1, 1), (1, 1))}),
    "wide, groups, stride": ((2, 7, 8, 12), (3, 2, 4, 6), {"groups": 3, "stride": (2, 3)}),
    "wide, one filter each": ((1, 5, 5, 8), (2, 2, 4, 2), {"groups": 2}),
    "as large as the input": ((2, 4, 5, 3), (4, 5, 3, 2), {"stride": 7}),
}


@pytest.mark.parametrize("name", CONV)
def test_convolutions_are_pytorchs(name: str) -> None:
    shape, kernel, how = CONV[name]
    tried = Tried(lambda x, k: ops.conv(x, k, **how), random.normal(size=shape),
                  random.normal(size=kernel))
    rank = len(kernel) - 2
    pads = [n for pair in reversed(how.get("padding", ())) for n in pair]

    def theirs(f: Any, x: Any, k: Any) -> Any:
        conv = getattr(f, f"conv{rank}d")
        return last(conv(f.pad(first(x), pads), kernel_first(k), stride=how.get("stride", 1),
                         dilation=how.get("dilation", 1), groups=how.get("groups", 1)))

    tried.is_torchs(theirs)


# and Keras' padding at the end if a stride is wider than the kernel
TRANSPOSED = {"plain": ({}, 0), "stride": ({"stride": (2, 3)}, (0, 1)),
              "dilation": ({"dilation": (1, 2)}, 0), "wide stride": ({"stride": 5}, (2, 3))}


@pytest.mark.parametrize("filters", [5, 9])  # few ones are added up, more are convolutions
@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolutions_are_pytorchs(name: str, filters: int) -> None:
    how, more = TRANSPOSED[name]
    tried = Tried(lambda x, k: ops.conv_transpose(x, k, **how), random.normal(size=(2, 4, 3, 2)),
                  random.normal(size=(3, 2, filters, 2)))
    tried.is_torchs(lambda f, x, k: last(f.conv_transpose2d(
        first(x), kernel_first(k), stride=how.get("stride", 1),
        dilation=how.get("dilation", 1), output_padding=more)))


POOL = {"plain": ((2, 6, 8, 3), 2, None), "over each other": ((2, 7, 9, 3), 3, 2),
        "apart": ((2, 7, 9, 2), (2, 1), (3, 2)), "left over": ((1, 5, 5, 1), 2, None)}


@pytest.mark.parametrize("name", POOL)
def test_pools_are_pytorchs(name: str) -> None:
    shape, size, stride = POOL[name]
    x = random.normal(size=shape)
    for ours, theirs in ((ops.max_pool, "max_pool2d"), (ops.average_pool, "avg_pool2d")):
        Tried(lambda x, ours=ours: ours(x, size, stride), x).is_torchs(
            lambda f, x, theirs=theirs: last(getattr(f, theirs)(first(x), size, stride)))


def test_upsampling_is_pytorchs() -> None:
    x = random.normal(size=(2, 3, 4, 2))
    Tried(lambda x: ops.upsample(x, (2, 3)), x).is_torchs(
        lambda f, x: last(f.interpolate(first(x), scale_factor=(2, 3))))
    Tried(lambda x: ops.upsample(x, (2, 3), "bilinear"), x).is_torchs(
        lambda f, x: last(f.interpolate(first(x), scale_factor=(2, 3), mode="bilinear")))


# -- ops that windows consist of -----------------------------------------------------------------------


@together()
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("stride", [1, 2, 3, 9])
@pytest.mark.parametrize("dilation", [1, 2])
def test_every_window_at_every_distance(size: int, stride: int, dilation: int) -> None:
    """Windows and fold are each other's transposes: <windows(x), g> = <x, fold(g)>."""
    for n in range((size - 1) * dilation + 1, 17):
        x = leaf("input", "x", (n,), "float64")
        y = ops.windows(x, (0,), size, stride, dilation)
        g = leaf("input", "g", y.shape, "float64")
        [back] = gradients(ops.sum(y * g), [x])
        feeds = {x: random.normal(size=n), g: random.normal(size=y.shape)}
        seen, direct, gradient = evaluate(
            [y, ops.overlap_add(g, (0,), (n,), stride, dilation), back], feeds)
        want = [[feeds[x][i * stride + k * dilation] for k in range(size)]
                for i in range(y.shape[0])]
        np.testing.assert_array_equal(seen, want)
        np.testing.assert_allclose(gradient, direct, atol=1e-12)
        np.testing.assert_allclose((seen * feeds[g]).sum(), feeds[x] @ direct, atol=1e-12)


def test_gradients_add_windows_by_phases() -> None:
    """Of 3 x 3 windows two apart, an element is in 4, 2, 2 or 1: its sum has no other terms."""
    x = leaf("input", "x", (1, 23, 23, 4), "float32")
    [slope] = gradients(ops.sum(ops.average_pool(x, 3, 2)), [x])
    terms = sorted(v.size // (12 * 12 * 4) for v in topological([slope]) if v.op.name == "place")
    assert terms == [1, 2, 2, 4]


@pytest.mark.parametrize("hop", [4, 5])
def test_few_windows_add_to_an_element(hop: int) -> None:
    frames = leaf("input", "frames", (9, 16), "float32")
    y = ops.overlap_add(frames, (0,), (60,), hop)
    assert max(v.size for v in topological([y])) <= 4 * 64


def test_windows_move_nothing() -> None:
    x = leaf("input", "x", (2, 9, 9, 3), "float32")
    for y in (ops.windows(x, (1, 2), 3), ops.windows(x, (1, 2), 3, 3)):
        while y is not x:
            assert is_view(y)
            y = y.args[0]


def test_gradients_of_gradients() -> None:
    x = leaf("input", "x", (1, 6, 5, 2), "float64")
    k = leaf("input", "k", (3, 2, 2, 3), "float64")
    y = ops.tanh(ops.conv(x, k, stride=2, padding="same"))
    [dk] = gradients(ops.sum(y * y), [k])
    [dx] = gradients(ops.sum(dk * dk), [x])
    feeds = {v: random.normal(size=v.shape) for v in (x, k)}
    at = (0, 2, 3, 1)

    def total(h: float) -> float:
        moved = feeds[x].copy()
        moved[at] += h
        return float((evaluate([dk], {**feeds, x: moved})[0] ** 2).sum())

    got = evaluate([dx], feeds)[0][at]
    np.testing.assert_allclose(got, (total(1e-5) - total(-1e-5)) / 2e-5, rtol=1e-6)


def test_padding_never_wins() -> None:
    """Not where all elements are far below zero, and not for integers."""
    for d, low in (("float32", -1e30), ("int8", -128), ("int32", -2**31)):
        x = leaf("input", "x", (1, 3, 3, 1), d)
        array = np.full(x.shape, low, x.dtype.numpy)
        job = Job(Graph({"y": ops.max_pool(x, 2, 1, "same")}), {x: array})
        for machine in ("scalar", HERE[-1]):
            np.testing.assert_array_equal(compiled(job, machine)[0], array)


def test_equal_elements_share_the_gradient() -> None:
    x = leaf("input", "x", (1, 4, 1), "float64")
    [dx] = gradients(ops.sum(ops.max_pool(x, 2)), [x])
    got = evaluate([dx], {x: np.array([[[1.0], [1.0], [0.0], [2.0]]])})[0]
    np.testing.assert_array_equal(got.ravel(), [0.5, 0.5, 0, 1])


# -- errors ----------------------------------------------------------------------------------------------


def value(*shape: int) -> Value:
    return leaf("input", "x", shape, "float32")


BAD = {
    "no stride": (lambda: ops.conv(value(1, 5, 5, 2), value(3, 3, 2, 4), stride=0),
                  "stride 0 must be 2 positive numbers, or one for all axes"),
    "strides": (lambda: ops.windows(value(5, 5), (0, 1), 3, (1, 2, 3)),
                r"stride \(1, 2, 3\) must be 2 positive numbers"),
    "a window": (lambda: ops.windows(value(5, 5), (1,), 3, 1, 3),
                 r"windows that reach over 7 elements do not fit axis 1 of \(5, 5\)"),
    "a kernel": (lambda: ops.conv(value(1, 4, 9, 2), value(5, 3, 2, 4)),
                 r"the kernel is larger than the inputs: \(5, 3, 2, 4\) and \(1, 4, 9, 2\); use a "
                 "smaller kernel, or padding='same'"),
    "a spread kernel": (lambda: ops.conv(value(1, 4, 9, 2), value(3, 3, 2, 4), dilation=2),
                        r"the kernel, which reaches over \(5, 5\), is larger"),
    "channels": (lambda: ops.conv(value(1, 9, 9, 3), value(3, 3, 2, 4)),
                 r"channels of inputs and kernel do not fit: \(1, 9, 9, 3\) and \(3, 3, 2, 4\); "
                 "the last axis of the inputs must be 2"),
    "groups": (lambda: ops.conv(value(1, 9, 9, 6), value(3, 3, 2, 4), groups=3),
               "in 3 groups: .* must be 6 and filters a multiple of 3"),
    "rank": (lambda: ops.conv(value(9, 9, 3), value(3, 3, 3, 4)),
             r"do not fit: \(9, 9, 3\) and \(3, 3, 3, 4\)"),
    "padding": (lambda: ops.conv(value(1, 9, 9, 2), value(3, 3, 2, 4), padding="full"),
                "padding 'full' is neither 'valid' nor 'same'"),
    "pairs": (lambda: ops.conv(value(1, 9, 9, 2), value(3, 3, 2, 4), padding=((1, 1),)),
              "must be a pair .before, after. for each of 2 axes"),
    "a pool": (lambda: ops.max_pool(value(1, 3, 9, 2), 4),
               r"pooling windows are larger than the inputs: \(4, 4\) and \(1, 3, 9, 2\)"),
    "only padding": (lambda: ops.max_pool(value(1, 3, 2), 2, padding=((2, 0),)),
                     "leaves windows of nothing but padding"),
    "transposed": (lambda: ops.conv_transpose(value(1, 3, 3, 2), value(3, 3, 2, 4)),
                   "the inputs' last axis must be 4"),
    "overlap_add": (lambda: ops.overlap_add(value(4, 3), (0,), (5,)),
             r"5 elements along axis 0 are too few to fold \(4, 3\); they must be 6"),
    "upsample": (lambda: ops.upsample(value(1, 3, 2), 2, "cubic"), "interpolation 'cubic'"),
}


@together()
@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_named(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(ShapeError, match=message):
        call()


def test_average_pools_divide_by_the_elements_inside() -> None:
    """By hand: the first and last window of "same" padding hold fewer numbers than those between."""
    x = leaf("input", "x", (1, 4, 1), "float32")
    same, valid = (ops.average_pool(x, 3, 1, padding) for padding in ("same", "valid"))
    got = evaluate([same, valid], {x: np.array([1, 2, 6, 10], np.float32).reshape(1, 4, 1)})
    assert got[0].ravel().tolist() == [1.5, 3.0, 6.0, 8.0]
    assert got[1].ravel().tolist() == [3.0, 6.0]
