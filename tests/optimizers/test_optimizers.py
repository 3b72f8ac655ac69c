"""Optimizers: fifty steps beside PyTorch and Keras in float64, and their states."""

from __future__ import annotations

import numpy as np
import pytest

from tests import references
from tests.optimizers.steps import GRADIENTS, START, close, ours, torch_weights
from ztorch import layers as L
from ztorch import optimizers
from ztorch.errors import ConfigError
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.model.sequential import Sequential
from ztorch.optimizers import SGD, Adam, AdamW, RMSprop


# epsilon is elsewhere in PyTorch's Adam and RMSprop: compared where it is next to nothing.
@pytest.mark.parametrize("optimizer, make", [
    (SGD(0.05, 0.9, nesterov=True), lambda o, w: o.SGD(w, 0.05, momentum=0.9, nesterov=True)),  # inner loop
    (SGD(0.05, momentum=0.9), lambda o, w: o.SGD(w, 0.05, momentum=0.9)),
    (SGD(0.05), lambda o, w: o.SGD(w, 0.05)),
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
def test_fifty_steps_equal_pytorch(optimizer, make):
    close(ours(optimizer), torch_weights(make), rtol=1e-9)


def test_running_means_decay_by_rho():
    """Two steps of RMSprop by its formula."""
    rate, rho = 0.01, 0.8
    got = ours(RMSprop(rate, rho, epsilon=0.0), steps=2)
    for k, name in enumerate(START):
        weight, mean = START[name], 0.0
        for g in (step[name] for step in GRADIENTS[:2]):
            mean = rho * mean + (1 - rho) * g * g
            weight = weight - rate * g / np.sqrt(mean)
        np.testing.assert_allclose(got[k], weight, rtol=1e-12)


def test_two_steps_of_nadam_and_ftrl_by_their_formulas():
    rate, b, l1, l2 = 0.01, 0.5, 0.2, 0.3
    nadam = ours(optimizers.Nadam(rate, b, 0.8, epsilon=0.0), steps=2)
    ftrl = ours(optimizers.Ftrl(rate, l1_regularization_strength=l1, l2_regularization_strength=l2), steps=2)
    u = [b * (1 - 0.5 * 0.96**t) for t in range(4)]
    for k, name in enumerate(START):
        w, m, v = START[name], 0.0, 0.0
        x, linear, squares = START[name], 0.0, 0.1
        for t, g in enumerate((step[name] for step in GRADIENTS[:2]), 1):
            m, v = b * m + (1 - b) * g, 0.8 * v + 0.2 * g * g
            ahead = u[t + 1] * m / (1 - np.prod(u[1:t + 2])) + (1 - u[t]) * g / (1 - np.prod(u[1:t + 1]))
            w = w - rate * ahead / np.sqrt(v / (1 - 0.8**t))
            linear = linear + g - (np.sqrt(squares + g * g) - np.sqrt(squares)) / rate * x
            squares = squares + g * g
            x = (np.clip(linear, -l1, l1) - linear) / (np.sqrt(squares) / rate + 2 * l2)
        np.testing.assert_allclose(nadam[k], w, rtol=1e-12)
        np.testing.assert_allclose(ftrl[k], x, rtol=1e-11)


def test_two_steps_by_their_formulas():
    """Of optimizers whose other tests take longer. With SGD's, Adam's and RMSprop's, these are most of them."""
    rate = 0.01
    made = {name: ours(getattr(optimizers, name)(rate, **more), steps=2) for name, more in (
        ("Adamax", {"beta_1": 0.5, "beta_2": 0.8, "epsilon": 0.0}), ("Adagrad", {"epsilon": 0.0}),
        ("Adadelta", {"rho": 0.7, "epsilon": 0.1}), ("Lion", {"beta_1": 0.6, "beta_2": 0.7}))}
    for k, start in enumerate(START.values()):
        adamax = adagrad = adadelta = lion = start
        m, u, total, squares, moved, direction = 0.0, 0.0, 0.1, 0.0, 0.0, 0.0
        for t, g in enumerate((list(step.values())[k] for step in GRADIENTS[:2]), 1):
            m, u = 0.5 * m + 0.5 * g, np.maximum(0.8 * u, np.abs(g))
            adamax = adamax - rate / (1 - 0.5**t) * m / u
            total = total + g * g
            adagrad = adagrad - rate * g / np.sqrt(total)
            squares = 0.7 * squares + 0.3 * g * g
            change = np.sqrt((moved + 0.1) / (squares + 0.1)) * g
            moved, adadelta = 0.7 * moved + 0.3 * change**2, adadelta - rate * change
            lion = lion - rate * np.sign(0.6 * direction + 0.4 * g)
            direction = 0.7 * direction + 0.3 * g
        close([made[name][k] for name in made], [adamax, adagrad, adadelta, lion])


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
def test_ten_steps_equal_keras(name, arguments):
    keras = references.keras()
    theirs = getattr(keras.optimizers, name)(learning_rate=0.02, **arguments)
    weights = [keras.Variable(w, dtype="float64") for w in START.values()]
    for g in GRADIENTS[:10]:
        theirs.apply([keras.ops.convert_to_tensor(d) for d in g.values()], weights)
    expected = [keras.ops.convert_to_numpy(w) for w in weights]
    close(ours(getattr(optimizers, name)(learning_rate=0.02, **arguments), 10), expected, 1e-5)


def test_muon_leaves_weights_of_three_axes_to_adam():
    weight = np.random.default_rng(4).normal(size=(2, 3, 2))
    moved = []
    for optimizer in (optimizers.Muon(0.02, weight_decay=None, adam_weight_decay=None), Adam(0.02, 0.9, 0.999, 1e-7)):
        w, g = leaf("state", "w", weight.shape, "float64", weight), leaf("input", "g", weight.shape, "float64")
        step = leaf("state", "optimizer/step", (), "int32", np.array(0, np.int32))
        new = {s.attrs["name"]: v for s, v in optimizer.new_values([w], [g], step).items()}
        run = references.Run(Graph({}, new))
        for k in (1, 2):
            run(g=weight * k - 0.3)
        moved.append(run.values["w"])
    np.testing.assert_allclose(moved[0], moved[1], rtol=1e-6)


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


def test_each_weight_may_have_its_own_optimizer():
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
    with pytest.raises(ConfigError, match="optimizers that are not MultiOptimizers"):
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
        assert theirs["name"].replace("_", "").startswith(mine.pop("name").replace("_", ""))
        assert mine == pytest.approx({k: theirs[k] for k in mine})


def test_adam_is_exact_in_float32_from_the_first_step():
    """Bias correction by 1 - 0.999 ** t would be off in the fifth digit here."""
    from ztorch.graph.evaluate import evaluate

    w = leaf("state", "w", (), "float32", np.float32(0))
    g = leaf("input", "g", (), "float32")
    step = leaf("state", "optimizer/step", (), "int32", np.int32(0))
    updates = Adam(1.0).new_values([w], [g], step)
    [after] = evaluate([updates[w]], {g: np.float32(100.0)})
    np.testing.assert_allclose(after, -1.0, rtol=3e-7)
