"""Kernels where users call them: on arrays and tensors, in models, under gradients and `compiled`."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import ztorch as zt
from models.kernels.convolution import conv2d, depthwise_conv2d
from models.kernels.k_means import k_means_step
from ztorch import layers as L
from ztorch.backends.python_calls import has_python_functions
from ztorch.errors import ConfigError
from ztorch.graph.op import leaf
from ztorch.graph.value import topological


@zt.kernel("any[b, n], any[n], any[n] -> any[b, n]")
def scale_shift(x, g, c):
    out = np.empty_like(x)
    for i, j in zt.grid(*x.shape):
        out[i, j] = x[i, j] * g[j] + c[j]
    return out


@zt.kernel
def powers(x, rate, count: int = 2):
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        y = x[i]
        for _ in range(count):
            y = y * rate + math.tanh(x[i])
        out[i] = y
    return out


X = np.random.default_rng(0).standard_normal((3, 5))
G, C = np.arange(5.0), np.ones(5)


def test_on_arrays_and_tensors() -> None:
    expected = X * G + C
    np.testing.assert_allclose(scale_shift(X, G, C), expected)
    y = scale_shift(zt.tensor(X), zt.tensor(G), C)
    assert isinstance(y, zt.Tensor)
    np.testing.assert_allclose((y * 2.0).numpy(), expected * 2.0)
    np.testing.assert_allclose(scale_shift.debug(X, G, C), expected)


def test_numbers_are_inputs_or_compiled_in() -> None:
    np.testing.assert_allclose(powers(X[0], 0.5), powers.debug(X[0], 0.5), rtol=1e-12)
    np.testing.assert_allclose(powers(X[0], 0.25, count=6), powers.debug(X[0], 0.25, 6), rtol=1e-12)
    half = X[0].astype(np.float16)
    assert powers(half, 0.5).dtype == np.float16


def test_gradients_are_those_of_the_formula() -> None:
    grads = zt.grad(lambda g: scale_shift(X, g, C).sum())(zt.tensor(G))
    np.testing.assert_allclose(grads.numpy(), X.sum(0), rtol=1e-12)
    step, at = 1e-6, X[0]

    def total(x: np.ndarray) -> float:
        return float(np.sum(powers.debug(x, 0.5) ** 2))

    numeric = [(total(at + step * e) - total(at - step * e)) / (2 * step) for e in np.eye(5)]
    ours = zt.grad(lambda x: (powers(x, 0.5) ** 2).sum())(zt.tensor(at))
    np.testing.assert_allclose(ours.numpy(), numeric, rtol=1e-7)


def test_under_compiled_and_vmap() -> None:
    step = zt.compiled(lambda x: scale_shift(zt.ops.exp(x), G, C).sum(axis=1))
    np.testing.assert_allclose(step(X), (np.exp(X) * G + C).sum(1))
    many = zt.vmap(lambda x: powers(x, 0.5))(zt.tensor(X))
    np.testing.assert_allclose(many.numpy(), np.stack([powers.debug(x, 0.5) for x in X]), rtol=1e-12)


def test_as_a_layer_that_learns() -> None:
    model = zt.Sequential([L.Input((5,)), L.Kernel(scale_shift, {"g": "ones", "c": ((5,), "zeros")}),
                           L.Dense(1)])
    program = model.compile("cpu", batch_size=8, optimizer=zt.optimizers.SGD(0.1), loss="mse")
    x = np.random.default_rng(1).standard_normal((64, 5)).astype(np.float32)
    history = program.fit(x, x @ np.arange(5, dtype=np.float32)[:, None], epochs=5, verbose=0)
    assert history.history["loss"][-1] < 0.2 * history.history["loss"][0]
    weights = program.weights
    assert np.abs(weights["kernel/g"] - 1.0).max() > 0.01


def test_layers_of_kernels_name_the_mistake() -> None:
    with pytest.raises(ConfigError, match=r"@zt\.kernel"):
        L.Kernel(np.exp)
    with pytest.raises(ValueError, match="unknown argument of <kernel scale_shift> 'gg'"):
        L.Kernel(scale_shift, {"gg": "ones"})
    with pytest.raises(ConfigError, match="the shape of weight 'rate' is unknown"):
        _ = zt.Sequential([L.Input((5,)), L.Kernel(powers, {"rate": "ones"})]).weights
    with pytest.raises(ValueError, match=r"takes 3 inputs \(x, g, c\), not 1"):
        _ = zt.Sequential([L.Input((5,)), L.Kernel(scale_shift)]).output_shape
    with pytest.raises(ConfigError, match="a config cannot store a function"):
        L.Kernel(scale_shift).get_config()
    typed = zt.kernel("f32[b], f32")(powers.function)  # `count` has a default
    assert zt.Sequential([L.Input(()), L.Kernel(typed, {"rate": "ones"})]).weights[0].shape == ()


def test_on_a_device_and_in_a_thread() -> None:
    future = scale_shift.on("cpu").submit(X, G, C)
    np.testing.assert_allclose(future.result(timeout=60), X * G + C)
    with pytest.raises(ValueError, match="nowhere"):
        scale_shift.on("nowhere:0")(X, G, C)
    assert "3 x 5 iterations at once" in scale_shift.explain(X, G, C)


@zt.kernel
def smooth(x):
    taps = [0.25, 0.5, 0.25]
    out = np.zeros_like(x)
    for i in range(1, x.shape[0] - 1):
        for k in range(3):
            out[i] += taps[k] * x[i + k - 1]
    return out


def test_numbers_in_a_list_are_a_table() -> None:
    np.testing.assert_allclose(smooth(C * 3), [0, 3, 3, 3, 0])
    half = np.arange(6, dtype=np.float16)
    assert smooth(half).dtype == np.float16
    np.testing.assert_allclose(smooth(half), smooth.debug(half), rtol=1e-3)


@zt.kernel
def along_the_diagonal(x, w, taps: tuple = (1, 1)):
    n = x.shape[0]
    out = np.zeros(n, x.dtype)
    for i in range(n):
        total = 0.0
        for k in range(w.shape[0]):
            at = i + k - 20
            if 0 <= at < n:
                total += x[at, at] * w[k]
        out[i] = scaled(total, taps[0])
    return out


def scaled(x, factor):  # after the kernel that calls it
    return x * factor / 2


def test_guards_hold_where_an_index_is_a_lookup() -> None:
    """A lookup outside of an array reads its ends, not zeros."""
    x, w = np.random.default_rng(3).standard_normal((6, 6)), np.linspace(1, 2, 40)
    np.testing.assert_allclose(along_the_diagonal(x, w), along_the_diagonal.debug(x, w), rtol=1e-12)


def test_tuples_of_other_numbers_are_other_kernels() -> None:
    x = np.arange(4, dtype=np.int32)
    assert first(x, (2, 1)).dtype == np.int32
    assert first(x, (2.0, 1)).dtype == np.float32


@zt.kernel
def first(x, factors):
    return x * factors[0]


@zt.kernel
def largest_of_windows(x, size=2):
    rows, columns, depth = x.shape
    out = np.empty((rows // size, columns // size, depth), x.dtype)
    for i, j, c in zt.grid(*out.shape):
        best = -math.inf
        for di in range(size):
            for dj in range(size):
                best = max(best, x[i * size + di, j * size + dj, c])
        out[i, j, c] = best
    return out


def test_the_largest_of_a_window_is_written_out() -> None:
    """As the op of the library computes it, and its gradient."""
    x = np.random.default_rng(4).permutation(48).reshape(4, 4, 3).astype(float)
    np.testing.assert_array_equal(largest_of_windows(x), largest_of_windows.debug(x))
    y = largest_of_windows.trace({"x": leaf("input", "x", x.shape, "float64"), "size": 2})
    assert not [v for v in topological([y]) if v.op.kind == "reduce"]
    ours, theirs = (zt.grad(lambda x, f=f: zt.ops.sum(f(x) * f(x)))(zt.tensor(x)).numpy() for f in (
        largest_of_windows, lambda x: zt.ops.max_pool(x[None], 2)[0]))
    np.testing.assert_array_equal(ours, theirs)


@zt.kernel
def counted(labels, rows):
    out, ones = np.zeros((3, rows.shape[1]), rows.dtype), np.zeros(3, rows.dtype)
    for i in range(labels.shape[0]):
        ones[labels[i]] += 1.0
        for j in range(rows.shape[1]):
            out[labels[i], j] += rows[i, j]
    return out, ones


def test_places_outside_of_a_table_count_nowhere() -> None:
    rows = np.arange(12.0).reshape(6, 2)
    for labels in (np.array([0, 2, 3, -1, 2, 1], np.int32), np.array([0, 2, 1 << 32, -1, 2, 1]),
                   np.array([0, 2, 255, 3, 2, 1], np.uint8)):
        sums, ones = counted(labels, rows)
        np.testing.assert_array_equal(sums, [rows[0], rows[5], rows[1] + rows[4]])
        np.testing.assert_array_equal(ones, [1, 1, 2])


@zt.kernel
def patched(x, y):
    """y in place of the middle columns of x, twice it in the last row, and a first row that is added."""
    out = np.empty_like(x)
    rows, columns = x.shape
    for i, j in zt.grid(rows, columns):
        out[i, j] = x[i, j]
    for i, j in zt.grid(rows, columns - 2):
        out[i, j + 1] = y[i, j]
    for j in range(columns - 2):
        out[rows - 1, j + 1] = y[0, j] * 2.0
    for j in range(columns):
        out[0, j] = x[0, j] + out[0, j]
    return out


def test_parts_of_an_array_are_joined_in_place() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 4, 6))
    y = y[:, 1:-1]
    np.testing.assert_allclose(patched(zt.tensor(x), zt.tensor(y)).numpy(), patched.debug(x, y))
    np.testing.assert_allclose(patched(x, y), patched.debug(x, y))
    made = patched.trace({n: leaf("input", n, a.shape, "float64") for n, a in (("x", x), ("y", y))})
    names = [v.op.name for v in topological([made])]
    assert names.count("concat") == 1 and names.count("take") == 1  # columns are joined, the row is not


def test_windows_and_offsets_are_read_in_place() -> None:
    """Zeros go around an image once, so its windows stay a convolution; centers are turned once."""
    image = np.ones((1, 56, 56, 32), np.float32)
    explanation = conv2d.on("cpu:avx2").explain(image, np.ones((3, 3, 32, 32), np.float32), padding=1)
    assert "winograd" in explanation and "pad" not in explanation
    explanation = depthwise_conv2d.on("cpu:avx2").explain(image, np.ones((3, 3, 32), np.float32), padding=1)
    assert "sliding" in explanation and "pad" not in explanation
    points, centers = np.ones((64, 4), np.float32), np.ones((16, 4), np.float32)
    explanation = k_means_step.on("cpu:avx2").explain(points, centers)
    assert len(re.findall(r"^k\d+_copy", explanation, re.MULTILINE)) == 1


def test_defaults_are_compiled_in_and_names_may_move_on() -> None:
    """A kernel of six written-out steps over two names, with a matrix of a known dtype."""

    @zt.kernel
    def steps(x, rate=0.1, first=0):
        row = x.copy()
        for _ in tuple(range(first, 6)):
            after = np.eye(x.shape[0], dtype=x.dtype)
            for i, j in zt.grid(*x.shape):
                after[i, j] = after[i, j] + row[j, i] * rate
            row = after
        return row

    x = X[:, :3]
    np.testing.assert_allclose(steps(x), steps.debug(x), rtol=1e-12)
    np.testing.assert_allclose(steps(x, first=5), steps.debug(x, first=5), rtol=1e-12)
    np.testing.assert_allclose(steps(x, 0.25), steps.debug(x, 0.25), rtol=1e-12)
    assert len(steps(zt.tensor(x)).node.operands) == 1, "no operand for a default"


def test_repeated_calls_are_recognized_by_their_form() -> None:
    """Numbers, names, dtypes and devices tell calls apart; so do 1, 1.0 and True."""

    @zt.kernel
    def scaled(x, y, by=2, bias=0.5):
        return x * by + y * bias

    x, y = zt.tensor(X[0]), zt.tensor(X[1])
    calls = [((x, y), {}), ((y, x), {}), ((x, y, 3), {}), ((x, y, 3.0), {}), ((x, y, True), {}),
             ((), {"y": y, "x": x}), ((x,), {"y": y, "bias": 2.0}), ((x, X[1]), {}), ((x, y, 2, 0.25), {})]
    for _ in range(4):  # a native function may record the last ones
        for args, named in calls:
            plain = [np.asarray(a) if isinstance(a, zt.Tensor) else a for a in args]
            expected = scaled.debug(*plain, **{n: np.asarray(a) for n, a in named.items()})
            np.testing.assert_allclose(scaled(*args, **named).numpy(), expected, rtol=1e-12)
    assert scaled(zt.tensor(X[0], dtype="float32"), y).numpy().dtype == np.float64
    assert (scaled.recorder is not None) is has_python_functions()


def test_explain_says_why_threads_are_not_fused() -> None:
    @zt.kernel
    def doubled(x):
        out = np.empty_like(x)
        for block, thread in zt.threads(2, 32):
            out[block * 32 + thread] = x[block * 32 + thread] * 2.0
        return out

    explanation = zt.explain(lambda x: zt.ops.exp(doubled(x * 3.0)), "f32[64]", device="cpu:avx2")
    assert explanation.count("a loop over threads is one kernel as written") >= 2
