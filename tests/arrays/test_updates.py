"""optimizer.update: the same steps as Optimizer.apply on a graph, and where its states live."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from ztorch import optimizers, schedules
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.optimizers.optimizer import Optimizer

random = np.random.default_rng(5)
START = {"a/bias": random.normal(size=3), "a/kernel": random.normal(size=(4, 3))}
GRADIENTS = [{n: random.normal(size=w.shape) * 10.0 ** (k % 4 - 2) for n, w in START.items()} for k in range(6)]

MAKES: list[Any] = [
    *(lambda c=c: c(0.01) for c in dict.fromkeys(Optimizer.known.values())
      if c not in (optimizers.LossScaleOptimizer, optimizers.MultiOptimizer)),
    lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.01), initial_scale=8.0, dynamic_growth_steps=2),
    lambda: optimizers.MultiOptimizer(optimizers.OptimizerMap(optimizers.SGD(0.1), {".*bias": optimizers.Adam(0.01)})),
    lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True), lambda: optimizers.Adam(0.01, amsgrad=True),
    lambda: optimizers.RMSprop(0.01, momentum=0.5, centered=True), lambda: optimizers.AdamW(0.01, weight_decay=0.3),
    lambda: optimizers.SGD(0.1, clipnorm=0.5), lambda: optimizers.SGD(0.1, clipvalue=0.05),
    lambda: optimizers.Adam(0.1, global_clipnorm=0.5),
    lambda: optimizers.SGD(schedules.ExponentialDecay(0.5, 2, 0.5)),
    lambda: optimizers.Adam(schedules.CosineDecay(0.1, 4)),
]
IDS = [str(make())[:60] for make in MAKES]


def applied(optimizer: Any, dtype: str = "float64", rates: Any = None) -> dict[str, Any]:
    """The weights after all gradients, by `Optimizer.apply` and the meaning of its ops."""
    weights = [leaf("state", n, w.shape, dtype, w.astype(dtype)) for n, w in START.items()]
    slopes = [leaf("input", f"d {n}", w.shape, dtype) for n, w in START.items()]
    step = leaf("state", "optimizer/step", (), "int32", np.array(0, np.int32))
    updates = optimizer.new_values(weights, slopes, step)
    run = references.Run(Graph({}, {s.attrs["name"]: v for s, v in updates.items()}))
    for k, g in enumerate(GRADIENTS):
        if rates is not None:
            run.values["optimizer/learning_rate"] = np.asarray(rates[k])
        run(**{f"d {n}": a for n, a in g.items()})
    return {n: run.values[n] for n in START}


def tree(arrays: dict[str, Any], dtype: str = "float64") -> Any:
    return {"a": {"bias": zt.tensor(arrays["a/bias"], dtype), "kernel": zt.tensor(arrays["a/kernel"], dtype)}}


def close(got: Any, want: dict[str, Any], rtol: float = 1e-9) -> None:
    for n in ("bias", "kernel"):
        np.testing.assert_allclose(got["a"][n].numpy(), want[f"a/{n}"], rtol=rtol, atol=1e-12)


@pytest.mark.usefixtures("by_numpy")
class TestByNumpy:
    @pytest.mark.parametrize("make", MAKES, ids=IDS)
    @pytest.mark.parametrize("wrap", [lambda f: f, zt.compiled], ids=["eager", "compiled"])
    def test_steps_are_those_of_apply(self, make: Any, wrap: Any) -> None:
        optimizer = make()
        params = tree(START)
        step = wrap(lambda p, g: optimizer.update(p, g))
        for g in GRADIENTS:
            params = step(params, tree(g))
        close(params, applied(make()))

    @pytest.mark.parametrize("wrap", [lambda f: f, zt.compiled], ids=["eager", "compiled"])
    def test_the_learning_rate_may_change_between_calls(self, wrap: Any) -> None:
        rates = [0.1, 0.1, 0.01, 0.5, 0.0, 0.2]
        optimizer = optimizers.Adam(0.1)
        params = tree(START)
        step = wrap(lambda p, g: optimizer.update(p, g))
        for rate, g in zip(rates, GRADIENTS, strict=True):
            optimizer.learning_rate = rate
            params = step(params, tree(g))
        close(params, applied(optimizers.Adam(0.1), rates=rates))

    def test_other_settings_may_change_between_steps_too(self) -> None:
        """Momentum goes on from its value, also after it was not used for a while."""
        optimizer, x = optimizers.SGD(0.5, momentum=0.5), zt.tensor([8.0])
        want, velocity = 8.0, 0.0
        for momentum, clip in ((0.5, None), (0.9, None), (0.9, 0.25), (0.0, None), (0.5, None)):
            optimizer.momentum, optimizer.clipvalue = momentum, clip
            x = optimizer.update(x, zt.tensor([1.0]))
            step = 0.5 * (1.0 if clip is None else clip)
            if momentum:
                velocity = momentum * velocity - step
            want += velocity if momentum else -step
            assert x.item() == pytest.approx(want)
        adam, y = optimizers.Adam(0.1), zt.tensor([1.0])
        y = adam.update(y, zt.tensor([1.0]))
        adam.beta_1 = 0.5
        y = adam.update(y, zt.tensor([3.0]))
        first, second = 0.1 * 0.5 + 3.0 * 0.5, 0.001 * 0.999 + 9.0 * 0.001
        change = 0.1 * (first / (1 - 0.25)) / (np.sqrt(second / (1 - 0.999**2)) + 1e-7)
        assert y.item() == pytest.approx(0.9 - change, rel=1e-4)

    def test_weights_are_excluded_from_decay_by_their_keys(self) -> None:
        ours, theirs = optimizers.SGD(0.1, weight_decay=0.5), optimizers.SGD(0.1, weight_decay=0.5)
        for o in (ours, theirs):
            o.exclude_from_weight_decay(["bias$"])
        params = tree(START)
        for g in GRADIENTS:
            params = ours.update(params, tree(g))
        close(params, applied(theirs))
        with_decay = applied(optimizers.SGD(0.1, weight_decay=0.5))
        assert not np.allclose(params["a"]["bias"].numpy(), with_decay["a/bias"])

    @pytest.mark.parametrize("again", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o)),
                                       lambda o: copy.deepcopy(pickle.loads(pickle.dumps(o)))],
                             ids=["deepcopy", "pickle", "both"])
    def test_copies_continue_from_their_state(self, again: Any) -> None:
        optimizer = optimizers.Adam(0.01)
        params = tree(START)
        for g in GRADIENTS[:3]:
            params = optimizer.update(params, tree(g))
        twin = again(optimizer)
        others = params
        for g in GRADIENTS[3:]:
            others = twin.update(others, tree(g))
        close(others, applied(optimizers.Adam(0.01)))
        for g in GRADIENTS[3:]:  # the copy has its own states
            params = optimizer.update(params, tree(g))
        close(params, applied(optimizers.Adam(0.01)))

    def test_a_copy_starts_anew_with_other_parameters(self) -> None:
        optimizer = optimizers.Adam(0.1)
        optimizer.update(zt.ones(2), zt.ones(2))
        twin = copy.deepcopy(optimizer)
        got = twin.update(zt.ones(3), zt.full(3, 2.0))
        np.testing.assert_allclose(got.numpy(), 0.9, rtol=1e-6)

    def test_two_trees_have_separate_states(self) -> None:
        optimizer = optimizers.SGD(0.1, momentum=0.9)
        params, other = tree(START), [zt.tensor([1.0, 2.0])]
        for g in GRADIENTS:
            params = optimizer.update(params, tree(g))
            other = optimizer.update(other, [zt.tensor([1.0, -1.0])])
        close(params, applied(optimizers.SGD(0.1, momentum=0.9)))
        want, velocity = np.array([1.0, 2.0]), np.zeros(2)
        for _ in GRADIENTS:
            velocity = velocity * 0.9 - 0.1 * np.array([1.0, -1.0])
            want = want + velocity
        np.testing.assert_allclose(other[0].numpy(), want, rtol=1e-5)

    def test_eager_and_compiled_steps_share_states(self) -> None:
        optimizer = optimizers.Adam(0.01)
        step = zt.compiled(lambda p, g: optimizer.update(p, g))
        params = tree(START)
        for k, g in enumerate(GRADIENTS):
            params = (step if k % 2 else optimizer.update)(params, tree(g))
        close(params, applied(optimizers.Adam(0.01)))

    def test_several_steps_in_one_call(self) -> None:
        optimizer = optimizers.Adam(0.01)

        @zt.compiled
        def three(p: Any, gs: Any) -> Any:
            for g in gs:
                p = optimizer.update(p, g)
            return p

        params = tree(START)
        for k in (0, 3):
            params = three(params, [tree(g) for g in GRADIENTS[k:k + 3]])
        close(params, applied(optimizers.Adam(0.01)))

    def test_a_step_that_fails_changes_no_state(self) -> None:
        optimizer = optimizers.Adam(0.01)

        @zt.compiled
        def step(p: Any, g: Any, fails: bool) -> Any:
            p = optimizer.update(p, g)
            return p if not fails else 1 // 0

        params = tree(START)
        for g in GRADIENTS:
            with pytest.raises(ZeroDivisionError):
                step(params, tree(g), True)
            params = step(params, tree(g), False)
        close(params, applied(optimizers.Adam(0.01)))

    def test_parameters_that_are_not_tensors(self) -> None:
        new = optimizers.SGD(1.0).update([np.float32([1.0, 2.0])], [np.float32([0.5, 0.0])])
        assert new[0].tolist() == [0.5, 2.0]
        assert optimizers.SGD(1.0).update(zt.tensor(3.0), zt.tensor(1.0)).item() == 2.0

    @pytest.mark.parametrize(("params", "grads", "kind", "words"), [
        ([zt.ones(2)], [zt.ones(3)], ShapeError, "shapes and dtypes must be equal"), ([zt.ones(2)], zt.ones(2), ShapeError, "same tree"),
        ([], [], ConfigError, "at least one"), ([zt.ones(2)], [zt.ones(2, "float64")], ShapeError, "shapes and dtypes must be equal"),
        ({"a": zt.ones(2)}, {"b": zt.ones(2)}, ShapeError, "same tree"),
    ])
    def test_wrong_calls_are_named(self, params: Any, grads: Any, kind: type[Exception], words: str) -> None:
        with pytest.raises(kind, match=words):
            optimizers.SGD().update(params, grads)

    def test_a_long_loop_compiles_once_and_forgets_its_past(self, builds: list[str]) -> None:
        optimizer = optimizers.Adam(0.1)
        w = zt.tensor([3.0, -2.0])
        slope = zt.grad(lambda w: ((w - 1.0) ** 2.0).sum())
        for _ in range(150):
            w = optimizer.update(w, slope(w))
            w.realize()
        np.testing.assert_allclose(w.numpy(), [1.0, 1.0], atol=0.05)
        assert len(builds) <= 2

    def test_printing_the_loss_of_each_step_computes_it_once(self, builds: list[str]) -> None:
        optimizer = optimizers.SGD(0.1)
        w = zt.tensor([3.0, -2.0])
        losses = []
        for _ in range(5):
            value, slope = zt.value_and_grad(lambda w: (w * w).sum())(w)
            losses.append(value.item())
            w = optimizer.update(w, slope)
        assert losses == sorted(losses, reverse=True) and losses[0] == 13.0
        assert len(builds) <= 3


def test_compiled_code_makes_the_same_steps() -> None:
    """Real programs, in float32; and `fit` of a model that means the same."""
    x = random.normal(size=(8, 4)).astype(np.float32)
    y = random.normal(size=(8, 3)).astype(np.float32)
    model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(3)])
    program = model.compile("cpu", optimizer=optimizers.Adam(0.05, weight_decay=0.1), loss="mse",
                            batch_size=8)
    kernel, bias = (np.array(w) for w in program.get_weights())
    program.fit(x, y, epochs=4, shuffle=False, verbose=0)
    optimizer = optimizers.Adam(0.05, weight_decay=0.1)

    def loss(p: Any, x: Any, y: Any) -> Any:
        return ((x @ p["kernel"] + p["bias"] - y) ** 2.0).mean()

    @zt.compiled
    def step(p: Any, x: Any, y: Any) -> Any:
        value, grads = zt.value_and_grad(loss)(p, x, y)
        return optimizer.update(p, grads), value

    params = {"kernel": zt.tensor(kernel), "bias": zt.tensor(bias)}
    for _ in range(4):
        params, value = step(params, x, y)
    assert value.shape == ()
    for got, want in zip((params["kernel"], params["bias"]), program.get_weights(), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)
