"""Options of optimizers: clipping, decay, schedules, states, names and wrong arguments."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests import references
from tests.optimizers.steps import GRADIENTS, START, close, ours, runner, torch_weights
from ztorch import layers as L
from ztorch import optimizers, schedules
from ztorch.errors import ConfigError, UnknownName
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import first_value, leaf
from ztorch.model.sequential import Sequential
from ztorch.optimizers import SGD, Adam, AdamW


@pytest.mark.parametrize("clip, function", [
    ({"clipvalue": 0.3}, lambda t, w: t.nn.utils.clip_grad_value_(w, 0.3)),
    ({"global_clipnorm": 0.7}, lambda t, w: t.nn.utils.clip_grad_norm_(w, 0.7)),
    ({"clipnorm": 0.7}, lambda t, w: [t.nn.utils.clip_grad_norm_([one], 0.7) for one in w])])
def test_clipping_equals_pytorch(clip, function):
    expected = torch_weights(lambda o, w: o.SGD(w, 0.05), after_backward=function)
    close(ours(SGD(0.05, **clip)), expected, rtol=1e-5)  # PyTorch adds 1e-6 to the norm


@pytest.mark.parametrize("size", [1e37, 1e25, 1.0, 1e-25])
@pytest.mark.parametrize("clip", [{"global_clipnorm": 0.7}, {"clipnorm": 0.7}, {"clipnorm": 1e-20},
                                  {"global_clipnorm": 1e20}], ids=str)
def test_clipping_by_norms_whose_squares_overflow(clip, size):
    """In float32, beside the formula in float64: to the last places, or untouched to the bit."""
    grads = {n: (g * size).astype(np.float32) for n, g in GRADIENTS[0].items()}
    graph = runner(SGD(1.0, **clip), "float32").graph
    feeds = {v: grads[v.attrs["name"][2:]] for v in graph.leaves("input")}
    feeds |= {v: first_value(v) * (v.attrs["name"] not in START) for v in graph.leaves("state")}
    steps = dict(zip(graph.updates, evaluate(graph.roots, feeds), strict=True))
    [limit] = clip.values()
    together = math.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in grads.values()))
    for n, g in grads.items():
        norm = together if "global_clipnorm" in clip else np.linalg.norm(g.astype(np.float64))
        expected = g if norm <= limit else g * (limit / norm)
        assert steps[n].dtype == np.float32
        np.testing.assert_allclose(-steps[n], expected, rtol=0 if norm <= limit else 2e-6)


def test_clipping_keeps_zero_gradients():
    run = runner(SGD(0.1, clipnorm=1.0))
    run(**{f"d {n}": np.zeros_like(w) for n, w in START.items()})
    close([run.values[n] for n in START], START.values())


def test_weight_decay_skips_excluded_weights():
    optimizer = SGD(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(["bias"])
    run = runner(optimizer)
    run(**{f"d {n}": np.zeros_like(w) for n, w in START.items()})
    np.testing.assert_allclose(run.values["a/kernel"], START["a/kernel"] * 0.95)
    np.testing.assert_array_equal(run.values["a/bias"], START["a/bias"])


def test_what_is_remembered_and_counted():
    run = runner(Adam())
    slots = {f"optimizer/{n}/{s}" for n, s in itertools.product(START, "mv")}
    assert set(run.values) == {*START, *slots, "optimizer/step", "optimizer/learning_rate"}
    assert set(run.graph.updates) == {*START, *slots, "optimizer/step"}
    for name in slots:
        state = run.states[name]
        assert state.attrs["kind"] == "slot" and state.attrs["trainable"] is False
        assert not first_value(state).any()
    run(**{f"d {n}": a for n, a in GRADIENTS[0].items()})
    assert run.values["optimizer/step"] == 1
    assert str(run.states["optimizer/learning_rate"].dtype) == "float64"
    assert set(runner(SGD(0.1)).values) == {*START, "optimizer/step", "optimizer/learning_rate"}


def test_the_learning_rate_can_be_set_between_steps():
    run = runner(SGD(0.5))
    gradient = {f"d {n}": np.ones_like(w) for n, w in START.items()}
    run(**gradient)
    run.values["optimizer/learning_rate"] = np.float64(0.25)
    run(**gradient)
    np.testing.assert_allclose(run.values["a/bias"], START["a/bias"] - 0.75)


def test_a_schedule_replaces_the_rate():
    run = runner(SGD(schedules.PiecewiseConstantDecay([0, 1], [1.0, 0.5, 0.0])))
    assert "optimizer/learning_rate" not in run.values
    for expected in (1.0, 1.5, 1.5):
        run(**{f"d {n}": np.ones_like(w) for n, w in START.items()})
        np.testing.assert_allclose(run.values["a/bias"], START["a/bias"] - expected)


def test_schedules_of_16_bits_count_every_step():
    weight = leaf("state", "w", (3,), "float16", np.ones(3, np.float16))
    step = leaf("state", "optimizer/step", (), "int32", np.int32(0))
    sgd = SGD(schedules.PiecewiseConstantDecay([2048], [1.0, 0.25]))
    new = sgd.new_values([weight], [weight], step)[weight]
    [y] = evaluate([new], {weight: np.ones(3), step: 2049})  # float16 has 2048 and 2050
    np.testing.assert_array_equal(y, 0.75)


@pytest.mark.parametrize("name, arguments", [
    ("ExponentialDecay", (0.1, 1e1, 0.5)), ("ExponentialDecay", (0.1, 10, 0.5, True)),
    ("InverseTimeDecay", (0.1, 10, 0.5)), ("InverseTimeDecay", (0.1, 10, 0.5, True)),
    ("PolynomialDecay", (0.1, 10, 0.01, 2.0)), ("PolynomialDecay", (0.1, 7, 0.01, 1.0, True)),
    ("CosineDecay", (0.1, 20)), ("CosineDecay", (0.1, 20, 0.2)),
    ("CosineDecayRestarts", (0.1, 5)), ("CosineDecayRestarts", (0.1, 4, 1.0, 0.7, 0.1)),
    ("PiecewiseConstantDecay", ([3, 7, 12], [1.0, 0.5, 0.2, 0.1]))])
def test_schedules_equal_keras(name, arguments):
    theirs = getattr(references.keras().optimizers.schedules, name)(*arguments)
    mine = getattr(schedules, name)(*arguments)
    for step in range(26):
        np.testing.assert_allclose(mine(step), float(theirs(step)), rtol=2e-6, atol=1e-8)
    again = schedules.get({"class_name": name, "config": mine.get_config()})
    assert again(5) == mine(5)
    of_keras = schedules.get({"class_name": name, "config": theirs.get_config()})
    assert of_keras.get_config() == mine.get_config()


def test_restarting_schedules_follow_their_formulas():
    restarts = schedules.CosineDecayRestarts(1.0, 4, 1.0, 0.5)
    cycles = schedules.PolynomialDecay(1.0, 4, 0.0, 2.0, cycle=True)
    for step in range(14):
        k, p = divmod(step, 4)
        np.testing.assert_allclose(restarts(step), 0.5 ** k * (1 + math.cos(math.pi * p / 4)) / 2)
        span = 4 * max(1, math.ceil(step / 4))
        np.testing.assert_allclose(cycles(step), (1 - step / span) ** 2)


def test_warmup_equals_keras():
    options = {"warmup_target": 0.3, "warmup_steps": 5, "alpha": 0.1}
    theirs = references.keras().optimizers.schedules.CosineDecay(0.05, 10, **options)
    mine = schedules.CosineDecay(0.05, 10, **options)
    for step in range(20):
        np.testing.assert_allclose(mine(step), float(theirs(step)), rtol=2e-6)


@pytest.mark.parametrize("make, message", [
    (lambda: SGD(-1.0), "SGD.learning_rate=.*at least 0, not -1.0"),
    (lambda: SGD("fast"), "learning_rate"), (lambda: SGD(float("nan")), "learning_rate"),
    (lambda: SGD(momentum=1.5), "SGD.momentum"), (lambda: Adam(beta_1=1.0), "Adam.beta_1"),
    (lambda: AdamW(beta_2=-0.1), "AdamW.beta_2"), (lambda: Adam(epsilon=-1), "epsilon"),
    (lambda: SGD(clipnorm=0), "clipnorm.*above 0"), (lambda: SGD(weight_decay=-1), "weight_decay"),
    (lambda: SGD(clipnorm=1.0, clipvalue=1.0), "one of clipnorm.*clipnorm and clipvalue"),
    (lambda: schedules.ExponentialDecay(0.1, 0, 0.5), "decay_steps"),
    (lambda: schedules.CosineDecay(0.1, 5, warmup_target=1.0), "warmup_steps"),
    (lambda: schedules.PiecewiseConstantDecay([1], [1.0]), "one value more"),
    (lambda: schedules.PiecewiseConstantDecay([2, 1], [1.0, 2.0, 3.0]), "must rise")])
def test_impossible_arguments(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_names_and_configs():
    with pytest.raises(UnknownName, match="did you mean 'adam'"):
        optimizers.get("adan")
    optimizer = Adam(schedules.CosineDecay(0.1, 100), clipnorm=2.0)
    again = optimizers.get({"class_name": "Adam", "config": optimizer.get_config()})
    assert again.get_config() == optimizer.get_config()
    assert optimizers.get(SGD).momentum == 0.0 and optimizers.get("RMSprop").rho == 0.9


def test_momentum_by_hand() -> None:
    """Steps of half the gradient, and of half of the step before, plain and Nesterov's."""
    first, second = GRADIENTS[:2]
    for nesterov in (False, True):
        got = ours(SGD(0.5, momentum=0.5, nesterov=nesterov), steps=2)
        for name, w in zip(START, got, strict=True):
            v1 = -0.5 * first[name]
            v2 = 0.5 * v1 - 0.5 * second[name]
            moved = v1 + v2
            if nesterov:
                moved = 0.5 * (v1 + v2) - 0.5 * (first[name] + second[name])
            np.testing.assert_allclose(w, START[name] + moved, rtol=1e-12, atol=1e-12)


def test_an_optimizer_without_a_step_is_named():
    class Lazy(optimizers.Optimizer):
        def update_step(self, gradient, variable, learning_rate):
            """The method of Keras' optimizers."""

    with pytest.raises(NotImplementedError, match=r"Lazy has no step\(self, weight.* in place of update_step"):
        ours(Lazy(0.1))


def test_sums_of_gradients_are_states_that_nothing_trains() -> None:
    model = Sequential([L.Input((3,)), L.Dense(2)], seed=0)
    program = model.compile("cpu", batch_size=4, loss="mse",
                            optimizer=optimizers.SGD(0.1, gradient_accumulation_steps=2))
    states = program.executable.states
    sums = {path: s for path, s in states.items() if path.endswith("/gradients")}
    assert {s.shape for s in sums.values()} == {(3, 2), (2,)}
    assert {(s.role, s.trainable) for s in sums.values()} == {("slot", False)}
    x, y = np.ones((4, 3), np.float32), np.zeros((4, 2), np.float32)
    kernel = program.get_weights()[0]
    slope = 2 * x.T @ (x @ kernel - y) / y.size  # of the mean of squares
    program.train_on_batch(x, y)
    np.testing.assert_allclose(program.executable.state("optimizer/dense/kernel/gradients"), slope, rtol=1e-5)
    np.testing.assert_array_equal(program.get_weights()[0], kernel)
    program.train_on_batch(x, y)
    np.testing.assert_allclose(program.get_weights()[0], kernel - 0.1 * slope, rtol=1e-5)
    np.testing.assert_array_equal(program.executable.state("optimizer/dense/kernel/gradients"), 0)
