"""Optimizers: fifty steps beside PyTorch and Keras in float64, and what they remember."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests import references
from ztorch import layers as L
from ztorch import optimizers, schedules
from ztorch.errors import ConfigError, UnknownName
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import first_value, leaf
from ztorch.graph.value import Graph
from ztorch.model.sequential import Sequential
from ztorch.optimizers import SGD, Adam, AdamW, RMSprop

random = np.random.default_rng(2)
START = {"a/kernel": random.normal(size=(4, 3)), "a/bias": random.normal(size=3)}
STEPS = 50
# Different in every step and of very different sizes, so that no term can hide.
GRADIENTS = [{n: random.normal(size=w.shape) * 10.0 ** random.integers(-3, 2) for n, w in
              START.items()} for _ in range(STEPS)]


def runner(optimizer, dtype="float64"):
    """The optimizer as a function of given gradients."""
    params = [leaf("state", n, w.shape, dtype, w.astype(dtype)) for n, w in START.items()]
    grads = [leaf("input", f"d {n}", w.shape, dtype) for n, w in START.items()]
    step = leaf("state", "optimizer/step", (), "int32", np.array(0, np.int32))
    updates = optimizers.get(optimizer).new_values(params, grads, step)
    return references.Run(Graph({}, {s.attrs["name"]: v for s, v in updates.items()}))


def ours(optimizer, steps=STEPS):
    run = runner(optimizer)
    for g in GRADIENTS[:steps]:
        run(**{f"d {n}": a for n, a in g.items()})
    return [run.values[n] for n in START]


def torch_weights(make, gradients=GRADIENTS, after_backward=None):
    torch = references.torch()
    weights = [torch.tensor(w, requires_grad=True) for w in START.values()]
    optimizer = make(torch.optim, weights)
    for g in gradients:
        for w, d in zip(weights, g.values(), strict=True):
            w.grad = torch.tensor(d)
        if after_backward:
            after_backward(torch, weights)
        optimizer.step()
    return [w.detach().numpy() for w in weights]


def close(got, expected, rtol=1e-10):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12)


# epsilon lies elsewhere in PyTorch's Adam and RMSprop: compared where it is next to nothing.
@pytest.mark.parametrize("optimizer, make", [
    (SGD(0.05), lambda o, w: o.SGD(w, 0.05)),
    (SGD(0.05, momentum=0.9), lambda o, w: o.SGD(w, 0.05, momentum=0.9)),
    (SGD(0.05, 0.9, nesterov=True), lambda o, w: o.SGD(w, 0.05, momentum=0.9, nesterov=True)),
    (Adam(0.01, epsilon=1e-18), lambda o, w: o.Adam(w, 0.01, eps=1e-18)),
    (Adam(0.01, 0.5, 0.9, epsilon=1e-18), lambda o, w: o.Adam(w, 0.01, (0.5, 0.9), eps=1e-18)),
    (Adam(0.01, 0.0, epsilon=1e-18), lambda o, w: o.Adam(w, 0.01, (0.0, 0.999), eps=1e-18)),
    (AdamW(0.01, weight_decay=0.1, epsilon=1e-18),
     lambda o, w: o.AdamW(w, 0.01, weight_decay=0.1, eps=1e-18)),
    (RMSprop(0.01, epsilon=1e-30), lambda o, w: o.RMSprop(w, 0.01, alpha=0.9, eps=1e-18)),
    (RMSprop(0.01, 0.8, momentum=0.5, epsilon=1e-30),
     lambda o, w: o.RMSprop(w, 0.01, alpha=0.8, momentum=0.5, eps=1e-18)),
    (RMSprop(0.01, 0.8, centered=True, epsilon=1e-30),
     lambda o, w: o.RMSprop(w, 0.01, alpha=0.8, centered=True, eps=1e-18)),
    (optimizers.Adagrad(0.05, 0.3, epsilon=1e-30),
     lambda o, w: o.Adagrad(w, 0.05, initial_accumulator_value=0.3, eps=1e-18)),
    (optimizers.Adamax(0.01, 0.5, 0.9, epsilon=1e-18),
     lambda o, w: o.Adamax(w, 0.01, (0.5, 0.9), eps=1e-18)),
], ids=lambda v: repr(v)[:60] if isinstance(v, optimizers.Optimizer) else "")
def test_fifty_steps_beside_pytorch(optimizer, make):
    close(ours(optimizer), torch_weights(make), rtol=1e-9)


@pytest.mark.parametrize("name, arguments", [
    ("SGD", {}), ("SGD", {"momentum": 0.9, "nesterov": True}), ("SGD", {"weight_decay": 0.1}),
    ("Adam", {}), ("Adam", {"amsgrad": True}), ("Adam", {"epsilon": 0.1}), ("AdamW", {}),
    ("RMSprop", {}), ("RMSprop", {"centered": True, "momentum": 0.5, "epsilon": 0.1}),
    ("Adagrad", {}), ("Adagrad", {"initial_accumulator_value": 0.01, "epsilon": 0.1}), ("Adamax", {}),
    ("Adamax", {"beta_1": 0.5, "beta_2": 0.8, "epsilon": 0.1}), ("Lion", {}),
    ("Nadam", {}), ("Nadam", {"beta_1": 0.5, "beta_2": 0.8, "epsilon": 0.1, "weight_decay": 0.1}),
    ("Adadelta", {}), ("Adadelta", {"rho": 0.5, "epsilon": 0.1}), ("Ftrl", {}),
    ("Ftrl", {"learning_rate_power": -0.3, "l1_regularization_strength": 0.2, "beta": 0.5,
              "l2_regularization_strength": 0.1, "l2_shrinkage_regularization_strength": 0.3}),
    ("Adafactor", {}), ("Adafactor", {"relative_step": False, "clip_threshold": 0.5,
                                      "beta_2_decay": -0.5, "epsilon_2": 0.1}),
    ("Lamb", {}), ("Lamb", {"beta_1": 0.5, "beta_2": 0.8, "epsilon": 0.1, "weight_decay": 0.1}),
    ("Muon", {}), ("Muon", {"nesterov": False, "rms_rate": None, "ns_steps": 2, "momentum": 0.5,
                            "adam_weight_decay": 0.1, "adam_lr_ratio": 0.1}),
    ("Muon", {"exclude_layers": ["."]}),
    ("Adam", {"use_ema": True, "ema_momentum": 0.8, "ema_overwrite_frequency": 3}),
    ("SGD", {"gradient_accumulation_steps": 4, "momentum": 0.9, "clipnorm": 0.5}),
    ("Adam", {"gradient_accumulation_steps": 3, "weight_decay": 0.1}),
    ("Lion", {"beta_1": 0.5, "beta_2": 0.8}), ("Adam", {"clipnorm": 0.5}), ("SGD", {"clipvalue": 0.3}), ("SGD", {"global_clipnorm": 0.7})])
def test_ten_steps_beside_keras(name, arguments):
    keras = references.keras()
    theirs = getattr(keras.optimizers, name)(learning_rate=0.02, **arguments)
    weights = [keras.Variable(w, dtype="float64") for w in START.values()]
    for g in GRADIENTS[:10]:
        theirs.apply([keras.ops.convert_to_tensor(d) for d in g.values()], weights)
    expected = [keras.ops.convert_to_numpy(w) for w in weights]
    close(ours(getattr(optimizers, name)(learning_rate=0.02, **arguments), 10), expected, 1e-5)


def test_schedule_free_steps_by_the_paper():
    """Not beside Keras, which by PyTorch changes the old place in memory before it is read."""
    b, b2, rate, epsilon, warm, decay = 0.6, 0.8, 0.02, 0.1, 4, 0.1
    expected = []
    for name, w in START.items():
        y, z, mean, v = w.copy(), w.copy(), w.copy(), 0.0
        for t in range(1, 11):
            g = GRADIENTS[t - 1][name]
            y = y * (1 - decay * rate)
            mean = (y - (1 - b) * z) / b
            v = b2 * v + (1 - b2) * g**2
            z = z - rate * min(t / warm, 1.0) * g / (np.sqrt(v / (1 - b2**t)) + epsilon)
            mean = mean + (z - mean) / t
            y = (1 - b) * z + b * mean
        expected.append(y)
    close(ours(optimizers.ScheduleFreeAdamW(rate, b, b2, epsilon, warm, weight_decay=decay), 10), expected)


def test_each_weight_may_have_an_optimizer_of_its_own():
    both = optimizers.MultiOptimizer(optimizers.OptimizerMap(Adam(0.02, clipnorm=0.5), {".*/bias": SGD(0.3)}))
    kernel, bias = ours(both, 6)
    close([kernel], ours(Adam(0.02, clipnorm=0.5), 6)[:1])
    close([bias], ours(SGD(0.3), 6)[1:])
    again = optimizers.get({"class_name": "MultiOptimizer", "config": both.get_config()})
    close(ours(again, 6), [kernel, bias])
    close(ours(optimizers.MultiOptimizer(lambda path: both.optimizers["kernel" in path]), 6), [kernel, bias])
    keras = references.keras()
    theirs = keras.optimizers.MultiOptimizer(lambda w: sgd if w.ndim == 1 else adam)
    sgd, adam = keras.optimizers.SGD(0.3), keras.optimizers.Adam(0.02, clipnorm=0.5)
    weights = [keras.Variable(w, dtype="float64") for w in START.values()]
    for g in GRADIENTS[:6]:
        theirs.apply([keras.ops.convert_to_tensor(d) for d in g.values()], weights)
    close([kernel, bias], [keras.ops.convert_to_numpy(w) for w in weights], 1e-5)
    with pytest.raises(ConfigError, match=r"weight 'a/b' matches a/\.\* and \.\*/b"):
        optimizers.OptimizerMap(Adam(), {"a/.*": SGD(), ".*/b": SGD()})["a/b"]
    with pytest.raises(ConfigError, match="optimizers of single weights"):
        optimizers.MultiOptimizer(optimizers.OptimizerMap(both))


def test_a_scaled_loss_trains_alike_and_grows():
    """Powers of two change no bit; an overflow changes no weight, and halves the scale."""
    def trained(optimizer, rate=1.0):
        model = Sequential([L.Input((3,)), L.Dense(2)], seed=1)
        model.compile("cpu:scalar", batch_size=8, optimizer=optimizer, loss="mse")
        x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(16, 3) * rate
        model.fit(x, x[:, :2], epochs=2, verbose=0, shuffle=False, nan="ignore")
        states = model.program.executable
        scale = states.state("optimizer/loss_scale") if "optimizer/loss_scale" in states.states else None
        return model.get_weights()[0], scale

    plain, _ = trained(Adam(0.02))
    scaled, scale = trained(optimizers.LossScaleOptimizer(Adam(0.02), initial_scale=64.0, dynamic_growth_steps=2))
    np.testing.assert_allclose(scaled, plain, rtol=1e-6)
    assert scale == 256.0
    first, _ = trained(Adam(0.0))
    kept, scale = trained(optimizers.LossScaleOptimizer(Adam(0.02), 2.0**100), rate=1e12)
    np.testing.assert_array_equal(kept, first)
    assert scale == 2.0**96
    inner = optimizers.get({"class_name": "LossScaleOptimizer", "config": optimizers.LossScaleOptimizer(
        SGD(0.3), 8.0).get_config()})
    assert inner.learning_rate == 0.3 and inner.initial_scale == 8.0


def test_defaults_are_those_of_keras():
    keras = references.keras()
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adamax", "Lion", "Nadam",
                 "Adadelta", "Ftrl", "Adafactor", "Lamb", "Muon", "ScheduleFreeAdamW"):
        theirs = getattr(keras.optimizers, name)().get_config()
        mine = optimizers.get(name).get_config()
        assert mine.pop("exclude_layers", []) == []
        assert mine == pytest.approx({k: theirs[k] for k in mine})


@pytest.mark.parametrize("clip, function", [
    ({"clipvalue": 0.3}, lambda t, w: t.nn.utils.clip_grad_value_(w, 0.3)),
    ({"global_clipnorm": 0.7}, lambda t, w: t.nn.utils.clip_grad_norm_(w, 0.7)),
    ({"clipnorm": 0.7}, lambda t, w: [t.nn.utils.clip_grad_norm_([one], 0.7) for one in w])])
def test_clipping_beside_pytorch(clip, function):
    expected = torch_weights(lambda o, w: o.SGD(w, 0.05), after_backward=function)
    close(ours(SGD(0.05, **clip)), expected, rtol=1e-5)  # PyTorch adds 1e-6 to the norm


@pytest.mark.parametrize("size", [1e37, 1e25, 1.0, 1e-25])
@pytest.mark.parametrize("clip", [{"global_clipnorm": 0.7}, {"clipnorm": 0.7}, {"clipnorm": 1e-20},
                                  {"global_clipnorm": 1e20}], ids=str)
def test_clipping_by_norms_whose_squares_are_no_numbers(clip, size):
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


def test_clipping_leaves_zero_gradients_alone():
    run = runner(SGD(0.1, clipnorm=1.0))
    run(**{f"d {n}": np.zeros_like(w) for n, w in START.items()})
    close([run.values[n] for n in START], START.values())


def test_weight_decay_spares_what_it_is_told():
    optimizer = SGD(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(["bias"])
    run = runner(optimizer)
    run(**{f"d {n}": np.zeros_like(w) for n, w in START.items()})
    np.testing.assert_allclose(run.values["a/kernel"], START["a/kernel"] * 0.95)
    np.testing.assert_array_equal(run.values["a/bias"], START["a/bias"])


def test_adam_is_exact_in_float32_from_the_first_step():
    """Bias correction by 1 - 0.999 ** t would be off in the fifth digit here."""
    from ztorch.graph.evaluate import evaluate

    w = leaf("state", "w", (), "float32", np.float32(0))
    g = leaf("input", "g", (), "float32")
    step = leaf("state", "optimizer/step", (), "int32", np.int32(0))
    updates = Adam(1.0).new_values([w], [g], step)
    [after] = evaluate([updates[w]], {g: np.float32(100.0)})
    np.testing.assert_allclose(after, -1.0, rtol=3e-7)


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


@pytest.mark.parametrize("name, arguments", [
    ("ExponentialDecay", (0.1, 10, 0.5)), ("ExponentialDecay", (0.1, 10, 0.5, True)),
    ("InverseTimeDecay", (0.1, 10, 0.5)), ("InverseTimeDecay", (0.1, 10, 0.5, True)),
    ("PolynomialDecay", (0.1, 10, 0.01, 2.0)), ("PolynomialDecay", (0.1, 7, 0.01, 1.0, True)),
    ("CosineDecay", (0.1, 20)), ("CosineDecay", (0.1, 20, 0.2)),
    ("CosineDecayRestarts", (0.1, 5)), ("CosineDecayRestarts", (0.1, 4, 1.0, 0.7, 0.1)),
    ("PiecewiseConstantDecay", ([3, 7, 12], [1.0, 0.5, 0.2, 0.1]))])
def test_schedules_beside_keras(name, arguments):
    theirs = getattr(references.keras().optimizers.schedules, name)(*arguments)
    mine = getattr(schedules, name)(*arguments)
    for step in range(26):
        np.testing.assert_allclose(mine(step), float(theirs(step)), rtol=2e-6, atol=1e-8)
    again = schedules.get({"class_name": name, "config": mine.get_config()})
    assert again(5) == mine(5)


def test_warmup_beside_keras():
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
