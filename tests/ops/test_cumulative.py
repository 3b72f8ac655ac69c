"""Running sums and products: any length, axis and dtype, and the same bits for any threads."""

from __future__ import annotations

import numpy as np
import pytest

from tests import references
from tests.parity import HERE, Job, Module, compiled, plan_of
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.dtypes import dtype, f64, from_storage, to_storage
from ztorch.errors import ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import constant, leaf
from ztorch.graph.value import Graph, Value
from ztorch.ops.cumulative import BLOCK

random = np.random.default_rng(3)
LENGTHS = (1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK // 2, 2 * BLOCK, BLOCK**2, BLOCK**2 + 1, BLOCK**3 + 5, 1000)


def value(y: Value) -> np.ndarray:
    return evaluate([y], {})[0]


@pytest.mark.parametrize("n", LENGTHS)
def test_every_length(n: int) -> None:
    data = random.normal(size=n)
    np.testing.assert_allclose(value(ops.cumsum(constant(data))), np.cumsum(data), atol=1e-9)
    near_one = 1 + data / n
    np.testing.assert_allclose(value(ops.cumprod(constant(near_one))), np.cumprod(near_one),
                               rtol=1e-9)


def test_an_axis_of_whole_blocks_is_not_padded() -> None:
    """The only copies are of the ends of blocks: 1000 is 125 blocks of 8."""
    x = leaf("input", "x", (4, 1000), "float32")
    plan, _ = plan_of(Graph({"y": ops.cumprod(x, 1)}), TARGETS["avx2"].limits)
    written = [max(location.size for location, is_written in zip(
        step.locations, step.writes, strict=True) if is_written) for step in plan.steps]
    assert sum(size >= x.size * 4 for size in written) == 2  # each block, and the result


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_every_axis(axis: int) -> None:
    data = random.normal(size=(19, 3, 21))
    np.testing.assert_allclose(value(ops.cumsum(constant(data), axis)), np.cumsum(data, axis),
                               atol=1e-12)


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                                  "uint64", "float16", "bfloat16", "float32", "float64"])
def test_every_dtype_compiled(name: str) -> None:
    """Integers wrap as NumPy's; floats are within the rounding of one addition a block."""
    d = dtype(name)
    x = leaf("input", "x", (3, 45), d)
    data = (random.normal(size=x.shape) if d.is_float else
            random.integers(0, 100, x.shape).astype(d.numpy))
    data = from_storage(d, to_storage(d, data))
    job = Job(Graph({"sum": ops.cumsum(x, -1)}), {x: data})
    [got] = compiled(job, HERE[-1])
    if d.is_int:
        np.testing.assert_array_equal(got, np.cumsum(data, -1, d.numpy))
    else:
        eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
        want = np.cumsum(data.astype(np.float64), -1)
        assert np.abs(got - want).max() <= 4 * eps[name] * np.abs(want).max()


def test_long_sums_are_precise() -> None:
    """A running sum in float32 is off by thousands of roundings at the end; this one by a few."""
    data = random.random(100_000).astype(np.float32)
    want = np.cumsum(data.astype(np.float64))
    x = leaf("input", "x", data.shape, "float32")
    [got] = compiled(Job(Graph({"y": ops.cumsum(x)}), {x: data}), HERE[-1])
    assert np.abs(got / want - 1).max() < 1e-6
    assert np.abs(np.cumsum(data) / want - 1).max() > 2e-6


def test_infinities_and_nan_go_forward_only() -> None:
    data = np.ones(40)
    data[20], data[30] = np.inf, np.nan
    np.testing.assert_array_equal(value(ops.cumsum(constant(data))), np.cumsum(data))


def test_the_same_bits_for_any_number_of_threads() -> None:
    x = leaf("input", "x", (5, 3000), "float32")
    job = Job(Graph({"s": ops.cumsum(x, -1), "p": ops.cumprod(x * 0.01 + 1.0, 0)}),
              {x: random.normal(size=x.shape).astype(np.float32)})
    module = Module([job], HERE[-1])
    alone = module.run(0, 1)
    for threads in (2, 3, 5):
        for a, b in zip(alone, module.run(0, threads), strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_gradient_of_a_sum_is_the_sum_from_behind() -> None:
    x = leaf("input", "x", (70,), f64)
    weights = random.normal(size=70)
    [dx] = gradients(ops.sum(ops.cumsum(x) * weights), [x])
    np.testing.assert_allclose(evaluate([dx], {x: random.normal(size=70)})[0],
                               np.cumsum(weights[::-1])[::-1], atol=1e-12)


def test_products_with_zeros_have_pytorchs_gradient() -> None:
    torch = references.torch()
    data, weights = random.normal(size=40), random.normal(size=40)
    data[[7, 25]] = 0
    theirs = torch.tensor(data, requires_grad=True)
    (torch.cumprod(theirs, 0) * torch.tensor(weights)).sum().backward()
    x = leaf("input", "x", (40,), f64)
    [dx] = gradients(ops.sum(ops.cumprod(x) * weights), [x])
    np.testing.assert_allclose(evaluate([dx], {x: data})[0], theirs.grad.numpy(), rtol=1e-9,
                               atol=1e-14)


def test_of_nothing_and_of_bools() -> None:
    assert ops.cumsum(leaf("input", "x", (3, 0), f64), 1).shape == (3, 0)
    with pytest.raises(ShapeError, match="does not take bool; cast"):
        ops.cumsum(leaf("input", "x", (3,), "bool"))
    with pytest.raises(ShapeError, match="axis 1 is out of range"):
        ops.cumsum(leaf("input", "x", (3,), f64), 1)
