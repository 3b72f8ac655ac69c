"""Layers where naive code fails: inputs of 1e4, means that dwarf deviations, rows that see nothing.

Compiled float32 against the float64 oracle on the very same numbers, in units of the last place of
the largest result; gradients chain several sums and get four times as many."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests import references
from tests.layers.running import MACHINES, Traced
from tests.parity import Job, Module
from ztorch import layers as L
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph
from ztorch.layers import Context, Layer, States
from ztorch.layers.activation import ACTIVATIONS

EPS = 2.0**-23
random = np.random.default_rng(2)
NOISE = random.normal(size=(5, 7, 6))

INPUTS = {
    "large": NOISE * 1e4, "far": NOISE + 1e4, "far below": NOISE - 1e4, "both": NOISE * 1e4 + 1e6,
    "tiny": NOISE * 1e-4, "equal": np.full(NOISE.shape, 1e4), "zero": NOISE * 0,
    "one far": np.where(np.arange(6) == 2, 1e4, NOISE),
}
NORMALIZING: dict[str, Callable[[], Layer]] = {
    "batch": L.BatchNormalization, "batch, first axis": lambda: L.BatchNormalization(axis=1),
    "group": lambda: L.GroupNormalization(2), "instance": lambda: L.GroupNormalization(-1),
    "layer": L.LayerNormalization, "layer, two axes": lambda: L.LayerNormalization((1, 2)),
    "root mean square": L.RMSNormalization, "unit": L.UnitNormalization,
    "unit, two axes": lambda: L.UnitNormalization((1, 2)),
}


def near(got: list[np.ndarray], want: list[np.ndarray], units: float, what: str,
         least: float = 1e-30) -> None:
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        assert np.isfinite(a).all(), what
        size = np.abs(b).max()
        np.testing.assert_allclose(a, b, rtol=0, atol=(units if k == 0 else 4 * units) * EPS * max(
            size, least), err_msg=f"{what}: result {k}")


@pytest.mark.parametrize("machine", MACHINES)
def test_normalizations_are_precise(machine: str) -> None:
    cases = [(f"{name} of {kind}", Traced(make(), x.astype(np.float32), True, "float32"))
             for name, make in NORMALIZING.items() for kind, x in INPUTS.items()]
    jobs = [case.job() for _, case in cases]
    compiled = Module(jobs, machine)
    for k, ((what, _), job) in enumerate(zip(cases, jobs, strict=True)):
        near(compiled.run(k), job.oracle(), 16, f"{what} on {machine}")


UNIT: dict[str, Callable[[], Layer]] = {
    "unit": L.UnitNormalization, "unit, two axes": lambda: L.UnitNormalization((1, 2)),
    "cosine": lambda: L.Parallel([L.Identity(), L.Lambda(lambda x: OPS.flip(x, axis=1))],
                                 L.Dot(2, normalize=True))}
ALONE = np.where(np.arange(6) == 4, 1.0, 0.0) * NOISE  # one number in a vector, which counts once


@pytest.mark.parametrize("machine", MACHINES)
def test_lengths_whose_squares_are_no_numbers(machine: str) -> None:
    """Squares of 1e25 and of 1e-25 are infinite and zero in float32."""
    sizes = [(f"{size:g}", NOISE * size) for size in (3e37, 1e25, 1e18, 1e-6, 1e-25)]
    cases = [(f"{name} of {kind}", Traced(make(), x.astype(np.float32), True, "float32"))
             for name, make in UNIT.items() for kind, x in (
                 *sizes, ("mixed", NOISE * 10.0 ** random.integers(-25, 25, NOISE.shape)),
                 ("alone", ALONE * 1e25), ("alone, small", ALONE))]
    jobs = [case.job() for _, case in cases]
    compiled = Module(jobs, machine)
    for k, ((what, _), job) in enumerate(zip(cases, jobs, strict=True)):
        near(compiled.run(k), job.oracle(), 16, f"{what} on {machine}", 1e-38)


def test_a_unit_is_keras_also_below_its_epsilon() -> None:
    keras = references.keras()
    for size in (1.0, 1e-9, 1e-11, 1e-12, 1e-13, 0.0):
        x = (NOISE * size).astype(np.float32)
        want = keras.ops.convert_to_numpy(keras.layers.UnitNormalization()(x.astype(np.float64)))
        [got] = Traced(L.UnitNormalization(), x, d="float32").oracle()[:1]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("machine", MACHINES)
def test_variances_up_to_the_largest_number(machine: str) -> None:
    """They are squares of 1e18 here; beyond 1e19 the variance itself is not a float32."""
    cases = [(f"{name} of {size:g}", Traced(make(), (NOISE * size).astype(np.float32), True,
                                            "float32"))
             for name, make in NORMALIZING.items() for size in (1e18, 1e-18)]
    jobs = [case.job() for _, case in cases]
    compiled = Module(jobs, machine)
    for k, ((what, _), job) in enumerate(zip(cases, jobs, strict=True)):
        near(compiled.run(k), job.oracle(), 16, f"{what} on {machine}", 1e-38)


@pytest.mark.parametrize("machine", MACHINES)
def test_activations_of_ten_thousand(machine: str) -> None:
    x = np.array([[-1e4, -100.0, -1.0, -1e-4, 1e-4, 1.0, 80.0, 1e4]], np.float32)
    names = [name for name in ACTIVATIONS if name != "exponential"]  # infinite, as it must be
    jobs = [Traced(L.Activation(name), x, d="float32").job() for name in names]
    compiled = Module(jobs, machine)
    for k, (name, job) in enumerate(zip(names, jobs, strict=True)):
        near(compiled.run(k), job.oracle(), 8, f"{name} on {machine}")


@pytest.mark.parametrize("machine", MACHINES)
def test_softmax_of_nothing_but_minus_infinity(machine: str) -> None:
    """Such a row has no probabilities: NaN, as PyTorch says; a mask in attention gives zeros."""
    torch = references.torch()
    x = np.array([[-math.inf] * 3, [-math.inf, 1e4, 1e4], [0, -math.inf, 0]], np.float32)
    case = Traced(L.Softmax(), x, d="float32")
    job = Job(Graph({"y": case.y}), case.feeds)
    [y] = Module([job], machine).run(0)
    np.testing.assert_array_equal(y, torch.tensor(x).softmax(-1).numpy())


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_positions_that_see_nothing(machine: str, size: float) -> None:
    """Their output is the bias alone, and nothing flows back through them."""
    layer = L.MultiHeadAttention(2, 3, name="mha")
    x, mask = leaf("input", "x", (2, 5, 6), "float32"), leaf("input", "mask", (2, 5, 5), "bool")
    context = Context(states=States())
    y = layer.attend(x, x, attention_mask=mask, context=context)
    states = [context.read(w) for w in layer.weights]
    seen = np.ones((2, 5, 5), bool)
    seen[0, 1] = seen[1] = False  # one position of the first row, and all of the second
    feeds = {x: (random.normal(size=x.shape) * size).astype(np.float32), mask: seen,
             **{v: w.value for v, w in zip(states, layer.weights, strict=True)}}
    result = gradients(OPS.sum(y * y * 0.5), [x, *states])
    job = Job(Graph({"y": y, **{f"d{k}": g for k, g in enumerate(result)}}), feeds)
    got = Module([job], machine).run(0)
    assert all(np.isfinite(a).all() for a in got)
    bias = layer.weights[-1].value
    np.testing.assert_array_equal(got[0][0, 1], bias)
    np.testing.assert_array_equal(got[0][1], np.broadcast_to(bias, (5, 6)))
    assert not got[1][1].any()
    if size == 1.0:  # beyond, one rounding of a score decides which key is seen
        near(got, evaluate(job.graph.roots, feeds, oracle=True), 64, machine, 1.0)


@pytest.mark.parametrize("loss", ["categorical_crossentropy", "binary_crossentropy"])
def test_probabilities_that_are_zero(loss: str) -> None:
    """A net that is certain, and wrong, has a finite loss and learns from it."""
    from ztorch.model.sequential import Sequential
    from ztorch.optimizers import SGD

    last = "softmax" if loss[0] == "c" else "sigmoid"
    model = Sequential([L.Input((2,)), L.Dense(2, use_bias=False), L.Activation(last)])
    model.set_weights([np.array([[1e4, -1e4], [-1e4, 1e4]])])
    program = model.compile("cpu", batch_size=2, optimizer=SGD(1.0), loss=loss)
    x = np.eye(2, dtype=np.float32)
    start = program.train_on_batch(x, x[::-1].copy())
    assert np.isfinite(start) and start > 1.0
    kernel = program.get_weights()[0]
    assert np.isfinite(kernel).all() and kernel[0, 0] < 1e4 and kernel[0, 1] > -1e4
