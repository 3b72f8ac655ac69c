"""Normalizations against PyTorch and Keras: values, gradients, moving statistics, hard inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import references
from tests.cases.grouping import together
from tests.layers.running import MACHINES, Traced, same
from tests.parity import Job, compiled
from tests.references import Run
from ztorch import layers as L
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.value import Graph
from ztorch.layers import Layer
from ztorch.model.sequential import Sequential
from ztorch.model.trace import trace
from ztorch.optimizers import SGD

SHAPE = (6, 5, 4)
random = np.random.default_rng(3)


def torch_batch(t: Any, x: Any, gamma: Any, beta: Any, mean: Any, variance: Any) -> Any:
    return t.nn.functional.batch_norm(x.transpose(1, 2), mean, variance, gamma, beta,
                                      training=False, eps=1e-3).transpose(1, 2)


def torch_batch_training(t: Any, x: Any, gamma: Any, beta: Any, *moving: Any) -> Any:
    return t.nn.functional.batch_norm(x.transpose(1, 2), None, None, gamma, beta,
                                      training=True, eps=1e-3).transpose(1, 2)


def torch_group(groups: int) -> Any:
    return lambda t, x, gamma, beta: t.nn.functional.group_norm(
        x.transpose(1, 2), groups, gamma, beta, eps=1e-3).transpose(1, 2)


# layer, whether training, the same in PyTorch
CASES = {
    "batch, training": (lambda: L.BatchNormalization(), True, torch_batch_training),
    "batch, predicting": (lambda: L.BatchNormalization(), False, torch_batch),
    "batch, frozen": (lambda: L.BatchNormalization(trainable=False), True, torch_batch),
    "batch, first axis": (
        lambda: L.BatchNormalization(axis=1), True,
        lambda t, x, gamma, beta, *moving: t.nn.functional.batch_norm(
            x, None, None, gamma, beta, training=True, eps=1e-3)),
    "batch, bare": (
        lambda: L.BatchNormalization(center=False, scale=False), True,
        lambda t, x, *moving: torch_batch_training(t, x, None, None)),
    "groups": (lambda: L.GroupNormalization(2), True, torch_group(2)),
    "instance": (lambda: L.GroupNormalization(-1), False, torch_group(4)),
    "groups, first axis": (
        lambda: L.GroupNormalization(5, axis=1), False,
        lambda t, x, gamma, beta: t.nn.functional.group_norm(x, 5, gamma, beta, eps=1e-3)),
    "layer": (lambda: L.LayerNormalization(), True,
              lambda t, x, gamma, beta: t.nn.functional.layer_norm(x, (4,), gamma, beta, 1e-3)),
    "root mean square": (lambda: L.RMSNormalization(), True,
                         lambda t, x, scale: t.nn.functional.rms_norm(x, (4,), scale, 1e-6)),
    "root mean square, two axes": (
        lambda: L.RMSNormalization(axis=(1, 2)), True,
        lambda t, x, scale: t.nn.functional.rms_norm(x, (5, 4), scale, 1e-6)),
    "unit": (lambda: L.UnitNormalization(), True,
             lambda t, x: t.nn.functional.normalize(x, dim=-1)),
    "unit, two axes": (lambda: L.UnitNormalization(axis=(1, 2)), True,
                       lambda t, x: x / x.square().sum((1, 2), keepdim=True).sqrt()),
}


def torch_results(case: Traced, function: Any) -> list[Any]:
    """Output and gradients of PyTorch in float64."""
    torch = references.torch()
    trains = [w.trains for w in case.layer.weights]
    x, *weights = (torch.tensor(case.feeds[v], dtype=torch.float64)
                   for v in (case.x, *map(case.context.read, case.layer.weights)))
    wrt = [x, *(w for w, t in zip(weights, trains, strict=True) if t)]
    for v in wrt:
        v.requires_grad_()
    y = function(torch, x, *weights)
    (y * torch.tensor(case.slope)).sum().backward()
    return [y, *(v.grad for v in wrt)]


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_are_pytorchs(name: str) -> None:
    make, training, function = CASES[name]
    case = Traced(make(), random.normal(1.0, 2.0, SHAPE), training)
    same(case.oracle(), torch_results(case, function))


@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str) -> None:
    make, training, _ = CASES[name]
    Traced(make(), random.normal(1.0, 2.0, SHAPE), training).compiled_agrees()


HARD = {"large": 1e4, "huge": 1e8, "tiny": 1e-6}


@together()
@pytest.mark.parametrize("how", ["large", "huge", "tiny", "far", "zero"])
@pytest.mark.parametrize("make", [L.BatchNormalization, lambda: L.GroupNormalization(2),
                                  L.LayerNormalization, L.RMSNormalization, L.UnitNormalization],
                         ids=["batch", "group", "layer", "rms", "unit"])
def test_hard_inputs_give_finite_numbers(make: Any, how: str) -> None:
    x = random.normal(size=SHAPE) * HARD.get(how, 1.0)
    x = x + 1e4 if how == "far" else x * 0 if how == "zero" else x
    case = Traced(make(), x.astype(np.float32), True, "float32")
    for a in evaluate(case.graph.roots, {v: np.asarray(a, v.dtype.numpy)
                                         for v, a in case.feeds.items()}):
        assert np.isfinite(a).all()


@pytest.mark.parametrize("make", [
    lambda: L.BatchNormalization(center=False, scale=False),
    lambda: L.GroupNormalization(2, center=False, scale=False)], ids=["batch", "group"])
def test_a_large_mean_costs_no_precision(make: Any) -> None:
    """4000 numbers about 1e5: summed in float32 as they are, their mean would be off by much of
    their deviation of 1. The variance is a sum of 4000 squares, which costs it some of its last
    digits, but the mean must cost none."""
    x = (random.normal(size=(500, 8, 4)) + 1e5).astype(np.float32)
    case = Traced(make(), x, True, "float32")
    job = Job(Graph({"y": case.y}), case.feeds)
    for machine in MACHINES:
        np.testing.assert_allclose(compiled(job, machine)[0], job.oracle()[0], rtol=2e-5,
                                   atol=2e-6)


# -- Keras ---------------------------------------------------------------------------------------------

KERAS = {
    "BatchNormalization": ({}, {"axis": 1, "momentum": 0.8, "center": False}),
    "GroupNormalization": ({"groups": 2}, {"groups": -1, "scale": False}),
    "LayerNormalization": ({}, {"axis": (1, 2)}),
    "RMSNormalization": ({}, {"axis": (1, 2)}),
    "UnitNormalization": ({}, {"axis": 1}),
}


@pytest.mark.parametrize(("name", "how"), [(n, h) for n, hows in KERAS.items() for h in hows])
def test_names_defaults_and_values_are_keras(name: str, how: dict[str, Any]) -> None:
    keras = references.keras()
    x = random.normal(1.0, 2.0, SHAPE).astype(np.float32)
    for training in (False, True):
        theirs = getattr(keras.layers, name)(**how, name="norm")
        theirs.build(x.shape)
        case = Traced(getattr(L, name)(**how, name="norm"), x, training)
        assert [w.path for w in theirs.weights] == [w.path for w in case.layer.weights]
        for w, v in zip(case.layer.weights, theirs.weights, strict=True):
            np.testing.assert_array_equal(w.value, keras.ops.convert_to_numpy(v))
        theirs.set_weights(list(case.weights.values()))
        want = theirs(x, training=training) if name == "BatchNormalization" else theirs(x)
        np.testing.assert_allclose(case.oracle()[0], keras.ops.convert_to_numpy(want), rtol=1e-4,
                                   atol=1e-5)


def test_moving_statistics_are_keras_after_several_steps() -> None:
    keras = references.keras()
    theirs = keras.layers.BatchNormalization(momentum=0.9, name="bn")
    model = Sequential([L.Input((5, 4)), L.BatchNormalization(momentum=0.9, name="bn")])
    step = Run(trace(model, 6, SGD(0.0), "mse").functions["train"])
    for _ in range(4):
        x = random.normal(2.0, 3.0, SHAPE).astype(np.float32)
        theirs(x, training=True)
        step(x=x, y=x, w=np.ones(6), real=np.ones(6))
    for w in theirs.weights[2:]:
        np.testing.assert_allclose(step.values[w.path], keras.ops.convert_to_numpy(w), rtol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "cpu:scalar"])
def test_a_compiled_program_learns_statistics_and_predicts_by_them(device: str) -> None:
    model = Sequential([L.Input((4,)), L.BatchNormalization(momentum=0.5, name="bn"), L.Dense(1)])
    program = model.compile(device, batch_size=8, optimizer=SGD(0.0), loss="mse")
    x = random.normal(3.0, 2.0, (8, 4)).astype(np.float32)
    before = program.predict(x)
    program.evaluate(x, np.zeros(8), verbose=0)
    np.testing.assert_array_equal(program.weights["bn/moving_mean"], 0)  # only training moves it
    for _ in range(20):
        program.train_on_batch(x, np.zeros(8))
    np.testing.assert_allclose(program.weights["bn/moving_mean"], x.mean(0), rtol=1e-4)
    np.testing.assert_allclose(program.weights["bn/moving_variance"], x.var(0), rtol=1e-4)
    assert np.abs(program.predict(x) - before).max() > 0.1
    np.testing.assert_allclose(program.predict(x[:3]), program.predict(x)[:3], rtol=1e-5)


def test_a_tail_is_normalized_with_its_own_rows() -> None:
    """3 rows in a batch of 4: padding does not count in the statistics."""
    model = Sequential([L.Input((2,)), L.BatchNormalization(momentum=0.0, name="bn")])
    program = model.compile("cpu", batch_size=4, optimizer=SGD(0.0), loss="mse")
    x = random.normal(size=(3, 2)).astype(np.float32)
    program.train_on_batch(x, x)
    np.testing.assert_allclose(program.weights["bn/moving_mean"], x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(program.weights["bn/moving_variance"], x.var(0), rtol=1e-5)


# -- mistakes --------------------------------------------------------------------------------------------


def built(layer: Layer) -> None:
    Sequential([L.Input((3, 6)), layer]).build()


def test_mistakes_are_named() -> None:
    with pytest.raises(ShapeError, match=r"layer 'group_normalization': 4 groups do not divide the "
                                         r"6 features.*\(3, 6\)"):
        built(L.GroupNormalization(4))
    with pytest.raises(ConfigError, match=r"BatchNormalization\(axis=\(1, 2\)\) takes one axis"):
        L.BatchNormalization(axis=(1, 2))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"BatchNormalization\(momentum=...\).*0 to 1"):
        L.BatchNormalization(momentum=1.5)
    with pytest.raises(ConfigError, match=r"GroupNormalization\(groups=...\).*at least 1"):
        L.GroupNormalization(0)
    with pytest.raises(ConfigError, match=r"RMSNormalization\(epsilon=...\).*above 0"):
        L.RMSNormalization(epsilon=0.0)
    with pytest.raises(ShapeError, match=r"layer 'unit_normalization': axis 3 is out of range"):
        built(L.UnitNormalization(axis=3))


@pytest.mark.parametrize("layer", [
    L.BatchNormalization(1, 0.5, 1e-2, False), L.GroupNormalization(3, scale=False),
    L.RMSNormalization((1, 2)), L.UnitNormalization(1)], ids=lambda v: v.name)
def test_configs_survive_json(layer: Layer) -> None:
    model = Sequential([L.Input((3, 6)), layer])
    again = Sequential.from_json(model.to_json())
    assert again.layers[0].get_config() == layer.get_config()
