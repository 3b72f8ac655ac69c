"""Functions with a custom gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import ops
from ztorch.arrays import derivatives, programs
from ztorch.errors import ConfigError, ShapeError, Unsupported
from ztorch.graph.tracing import NotTraced

fast = pytest.mark.usefixtures("by_numpy")
X = zt.tensor([1.0, -2.0, 3.0])


def near(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got.numpy(), np.asarray(want), rtol=1e-5)


@zt.custom_gradient
def log1pexp(x: Any) -> Any:
    """TensorFlow's example: its own derivative is NaN for large x."""
    e = ops.exp(x)

    def backward(upstream: Any) -> Any:
        return upstream * (1.0 - 1.0 / (1.0 + e))

    return ops.log(1.0 + e), backward


@zt.custom_gradient
def cube(x: Any) -> Any:
    return x * x * x, lambda upstream: upstream * 3.0 * x * x


def test_compiled_training_uses_it_once(builds: list[str]) -> None:
    step = zt.compiled(zt.grad(lambda x: log1pexp(x).sum()))
    for _ in range(2):
        near(step(zt.tensor([0.0, 100.0])), [0.5, 1.0])
    assert len(builds) == 1
    assert np.isnan(zt.grad(lambda x: ops.log(1.0 + ops.exp(x)))(zt.tensor(100.0)).numpy())


def test_a_loop_compiles_once(builds: list[str]) -> None:
    for _ in range(3):
        zt.grad(lambda x: cube(x).sum())(X).numpy()
    assert len(builds) == 1


# -- evaluated by NumPy ----------------------------------------------------------------------------


@fast
def test_value_and_derivatives() -> None:
    near(cube(X), [1.0, -8.0, 27.0])
    total = lambda x: cube(x).sum()  # noqa: E731
    near(zt.grad(total)(X), 3.0 * X * X)
    near(zt.grad(lambda x: zt.grad(total)(x).sum())(X), 6.0 * X)
    near(zt.jvp(cube, [X], [X])[1], 3.0 * X * X * X)
    near(zt.vjp(cube, X)[1](X)[0], 3.0 * X * X * X)
    near(zt.hessian(total)(X), np.diag(6.0 * X.numpy()))


@fast
def test_the_derivative_of_backward_uses_computed_values() -> None:
    sigmoid = ops.sigmoid(X).numpy()
    second = zt.grad(lambda x: zt.grad(lambda x: log1pexp(x).sum())(x).sum())
    near(second(X), sigmoid * (1.0 - sigmoid))

    @zt.custom_gradient
    def looked_at(x: Any) -> Any:
        y = x * x
        assert y.sum().item() == 14.0  # computed while the function runs
        return y, lambda upstream: upstream * 2.0 * x * y / y

    near(zt.grad(lambda x: zt.grad(lambda x: looked_at(x).sum())(x).sum())(X), [2.0, 2.0, 2.0])


@fast
def test_what_it_says_is_the_gradient() -> None:
    @zt.custom_gradient
    def reversed_gradient(x: Any) -> Any:
        return x * 1.0, lambda upstream: -upstream

    near(zt.grad(lambda x: (reversed_gradient(x) * X).sum())(X), -X.numpy())

    @zt.custom_gradient
    def straight_through(x: Any) -> Any:
        return ops.sign(x), lambda upstream: upstream

    near(zt.grad(lambda x: (straight_through(x) * 2.0).sum())(X), [2.0, 2.0, 2.0])

    @zt.custom_gradient
    def nothing(x: Any) -> Any:
        return x * 2.0, lambda upstream: None

    near(zt.grad(lambda x: (nothing(x) + x).sum())(X), [1.0, 1.0, 1.0])


@fast
def test_several_arguments_and_results() -> None:
    @zt.custom_gradient
    def both(x: Any, options: Any, power: float, *, scale: float) -> Any:
        def backward(first: Any, second: Any) -> Any:
            return first * second, {"b": second * scale, "n": None}  # not linear, so not separable

        return (x * 2.0, [ops.sum(options["b"]) * 3.0]), backward

    def loss(x: Any, b: Any) -> Any:
        one, [two] = both(x, {"b": b, "n": zt.tensor([1, 2])}, 2.0, scale=10.0)
        return (one * 5.0).sum() + two * 7.0

    dx, db = zt.grad(loss, argnums=(0, 1))(X, zt.tensor(4.0))
    near(dx, [35.0, 35.0, 35.0])
    near(db, 70.0)


@fast
def test_captured_tensors_have_gradients() -> None:
    def loss(x: Any, w: Any) -> Any:
        @zt.custom_gradient
        def scaled(x: Any) -> Any:
            return x * w, lambda upstream: upstream * w * 100.0

        return scaled(x).sum()

    dx, dw = zt.grad(loss, argnums=(0, 1))(X, zt.tensor(2.0))
    near(dx, [200.0, 200.0, 200.0])
    near(dw, 2.0)
    near(zt.grad(lambda w: zt.grad(loss)(X, w).sum())(zt.tensor(2.0)), 300.0)


@fast
@pytest.mark.parametrize("around", [
    lambda f: zt.vmap(f), lambda f: zt.compiled(zt.vmap(f)), lambda f: zt.vmap(zt.compiled(f)),
    lambda f: lambda x: ops.stack([f(row) for row in x], axis=0)])
def test_examples_by_themselves(around: Callable[..., Any]) -> None:
    rows = ops.stack([X, X * 2.0], axis=0)
    near(around(zt.grad(lambda x: cube(x).sum()))(rows), 3.0 * rows * rows)
    near(around(zt.grad(lambda x: log1pexp(x).sum()))(rows), ops.sigmoid(rows))
    clip = zt.custom_gradient(lambda x: (x * 1.0, lambda g: g / ops.norm(g)))
    want = rows / ops.norm(rows, axis=1, keepdims=True)  # each example's own norm
    near(around(zt.grad(lambda x: (clip(x) ** 2.0).sum()))(rows), want)


@fast
def test_the_gradient_of_a_vectorized_function() -> None:
    rows = ops.stack([X, X * 2.0], axis=0)
    near(zt.grad(lambda x: zt.vmap(cube)(x).sum())(rows), 3.0 * rows * rows)
    product = zt.custom_gradient(lambda x, w: (x * w, lambda g: (g * w, g * x * 10.0)))
    shared = zt.grad(lambda w: zt.vmap(lambda x: product(x, w))(rows).sum())
    near(shared(X), 10.0 * rows.sum(axis=0))


@fast
def test_in_layers_and_losses() -> None:
    class Cube(zt.layers.Layer):
        def call(self, x: Any, context: Any) -> Any:
            return cube(x) * context.read(self.scale)

        def build(self, shape: Any) -> None:
            self.scale = self.add_weight("scale", (1,), "ones")

    layer = Cube()
    near(layer(X), [1.0, -8.0, 27.0])
    near(zt.grad(lambda x: layer(x).sum())(X), 3.0 * X * X)


def test_fit_trains_with_it() -> None:
    @zt.custom_gradient
    def frozen(x: Any) -> Any:
        weight = ops.exp(x)
        return weight * 0.0 + x, lambda upstream: upstream * 0.0 * weight

    class Frozen(zt.layers.Layer):
        def call(self, x: Any, context: Any) -> Any:
            return frozen(x)

    model = zt.Sequential([zt.layers.Input((3,)), zt.layers.Dense(2), Frozen(),
                           zt.layers.Dense(1)])
    program = model.compile("cpu", batch_size=4, optimizer=zt.optimizers.SGD(0.1), loss="mse")
    before = [np.array(w) for w in program.get_weights()]
    program.fit(np.ones((8, 3), np.float32), np.ones((8, 1), np.float32), epochs=1, verbose=0)
    changed = [not np.array_equal(a, b)
               for a, b in zip(before, program.get_weights(), strict=True)]
    assert changed == [False, False, True, True]


def test_a_call_with_numbers_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its results share the numbers: of each gradient there is one, not one for every parameter."""
    derived: list[int] = []
    real = derivatives.gradients

    def counted(y: Any, wrt: Any) -> Any:
        derived.append(len(wrt))
        return real(y, wrt)

    monkeypatch.setattr(derivatives, "gradients", counted)
    slopes = zt.grad(lambda p: (p[0] * 2.0 + p[1] * 3.0 + p[2] * 4.0).sum() * 5.0)([X, X, X])
    assert [s.tolist()[0] for s in slopes] == [10.0, 15.0, 20.0]
    derived.clear()
    programs.forget()
    both = zt.grad(lambda p: (p[0] * 2.5 + p[1] * 3.5 + p[2] * 4.5).sum() * 5.5)([X, X, X])
    with zt.lazy(False):
        total = both[0] + both[1] + both[2]
    assert total.tolist()[0] == 57.75
    assert derived == [3]  # when it is compiled; the structure was known


# -- errors ----------------------------------------------------------------------------------------


def test_wrong_functions() -> None:
    with pytest.raises(ConfigError, match="function of tensors"):
        zt.custom_gradient(3)
    with pytest.raises(ConfigError, match=r"must return \(result, backward\)"):
        zt.custom_gradient(lambda x: x)(X)
    with pytest.raises(ConfigError, match="must be a tensor, or a tree"):
        zt.custom_gradient(lambda x: (1.0, lambda g: g))(X)
    with pytest.raises(ShapeError, match="one float dtype"):
        zt.custom_gradient(lambda x: (ops.argmax(x), lambda g: g))(X)


@pytest.mark.parametrize("backward, message", [
    (lambda g: ops.sum(g), "the gradient of tensor 0"), (lambda g: (g, g), "gives 2 gradients"),
    (lambda g: 1.0, "must give tensors, not float")])
def test_wrong_gradients(backward: Callable[..., Any], message: str) -> None:
    with pytest.raises((ShapeError, ConfigError), match=message):
        zt.custom_gradient(lambda x: (x * 1.0, backward))(X)


def test_backward_has_no_values() -> None:
    with pytest.raises(NotTraced, match="no value"):
        zt.custom_gradient(lambda x: (x * 1.0, lambda g: g if g.sum() > 0 else -g))(X)
    with pytest.raises(Unsupported, match="random numbers or a state"):
        zt.custom_gradient(lambda x: (x * 1.0, lambda g: g * zt.rand(3)))(X)
