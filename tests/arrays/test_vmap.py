"""`zt.vmap` against a loop over the examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import device as opened
from ztorch import ops
from ztorch.errors import ConfigError, ShapeError, Unsupported
from ztorch.graph.tracing import NotTraced
from ztorch.graph.trees import flatten

random = np.random.default_rng(0)


def tensor(*shape: int) -> zt.Tensor:
    return zt.tensor(random.normal(size=shape).astype(np.float32))


def same(got: Any, want: Any) -> None:
    """Two trees of tensors or arrays."""
    ours, tree = flatten(got)
    theirs, other = flatten(want)
    assert tree == other
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)


def looped(function: Callable[..., Any], *args: zt.Tensor) -> Any:
    """A function of each example, its results stacked."""
    rows = [flatten(function(*example)) for example in zip(*args, strict=True)]
    stacked = [ops.stack(ys, axis=0) for ys in zip(*(leaves for leaves, _ in rows), strict=True)]
    return stacked[0] if len(stacked) == 1 else tuple(stacked)


def softmax_loss(w: Any, x: Any, label: Any) -> Any:
    hidden = ops.tanh(x @ w["a"] + w["b"])
    return ops.logsumexp(hidden) - ops.take(hidden, label)


def weights() -> dict[str, zt.Tensor]:
    return {"a": tensor(4, 3), "b": tensor(3)}


# -- compiled, on devices that run here ------------------------------------------------------------


@pytest.fixture(params=["cpu", "opencl:0", "vulkan:0"])
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """Tensors are made on this device."""
    name: str = request.param
    if name != "cpu":
        opened(name.partition(":")[0])
    with zt.device(name):
        yield name


on_devices = pytest.mark.usefixtures("place")


@on_devices
def test_gradients_of_each_example_are_one_program(builds: list[str]) -> None:
    w, x, labels = weights(), tensor(6, 4), zt.tensor([0, 1, 2, 2, 1, 0], dtype="int32")
    slopes = zt.compiled(zt.vmap(zt.grad(softmax_loss), in_axes=(None, 0, 0)))
    for _ in range(2):
        got = slopes(w, x, labels)
    assert len(builds) == 1
    each = [zt.grad(softmax_loss)(w, x[k], labels[k]) for k in range(6)]
    same(got, {k: ops.stack([e[k] for e in each], axis=0) for k in w})


@on_devices
def test_a_loop_compiles_once(builds: list[str]) -> None:
    for _ in range(3):
        zt.vmap(lambda x: (x * 2.0).sum())(tensor(5, 4)).numpy()
    assert len(builds) == 1


@on_devices
@pytest.mark.parametrize("function, shapes", [
    (lambda x, y: ops.take(x, ops.cast(y * 4.0, "int32"), axis=1), ((2, 5), (3,))),
    (lambda x, y: ops.conv(x, y, padding="same"), ((1, 5, 8), (3, 8, 4))),
    (lambda x, y: ops.softmax(ops.sort(x * y)), ((5,), (5,))),
    (lambda x, y: zt.grad(lambda x: ops.take(x, ops.cast(y * 4.0, "int32")).max())(x),
     ((5,), (3,)))])
def test_code_for_many_examples(function: Callable[..., Any], shapes: Any) -> None:
    """Of ops whose rules are not those of elementwise ops, reductions and movement."""
    x, y = (tensor(3, *shape) for shape in shapes)
    same(zt.vmap(function)(x, y), looped(function, x, y))


def test_derivatives_inside_and_outside_on_devices(place: str) -> None:
    w, x = tensor(4), tensor(3, 4)
    got = zt.grad(lambda w: zt.vmap(lambda x: ops.exp(x @ w))(x).sum())(w)
    same(got, (ops.exp(x @ w).reshape((3, 1)) * x).sum(axis=0))
    same(zt.vmap(zt.grad(lambda x: (x * x * x).sum()))(x), 3.0 * x * x)
    same(zt.vmap(zt.vmap(lambda x, y: (x * y).sum(), in_axes=(None, 0)), in_axes=(0, None))(x, x), x @ x.T)
    assert got.device == place


# -- evaluated by NumPy ----------------------------------------------------------------------------

pytestmark_fast = pytest.mark.usefixtures("by_numpy")


@pytestmark_fast
@pytest.mark.parametrize("function", [
    lambda x, y: x + y, lambda x, y: ops.outer(x, y), lambda x, y: (x @ y, x.max()),
    lambda x, y: ops.sort(x * y), lambda x, y: ops.concat(x, y), lambda x, y: x[1:3] * y[0],
    lambda x, y: ops.where(x > y, x, 0.0).cumsum(axis=0), lambda x, y: zt.ones((2,)),
    lambda x, y: ops.take(x, ops.argmax(y)), lambda x, y: ops.softmax(x)])
def test_against_a_loop(function: Callable[..., Any]) -> None:
    x, y = tensor(3, 4), tensor(3, 4)
    same(zt.vmap(function)(x, y), looped(function, x, y))


@pytestmark_fast
def test_axes_of_arguments_and_results() -> None:
    x, y = tensor(4, 3), tensor(3, 4)
    got = zt.vmap(lambda x, y: (x * y, x.sum()), in_axes=(1, 0), out_axes=(-1, 0))(x, y)
    same(got, (x * y.T, x.sum(axis=0)))
    cube = tensor(3, 2, 4)
    same(zt.vmap(lambda x: x * 2, in_axes=-2, out_axes=-1)(cube), ops.transpose(cube, (0, 2, 1)) * 2)
    got = zt.vmap(lambda d: d["a"] * d["b"], in_axes=({"a": 1, "b": None},))({"a": x, "b": 2.0})
    same(got, x.T * 2.0)
    got = zt.vmap(lambda x, y: (x, y * 2), in_axes=(0, None), out_axes=(0, None))(x, y)
    same(got, (x, y * 2))


@pytestmark_fast
def test_trees_named_arguments_and_numbers() -> None:
    rows = {"x": [tensor(3, 4), tensor(3)], "none": None}
    got = zt.vmap(lambda d, power, *, scale: {"y": (d["x"][0] ** power, d["x"][1] * scale)},
                  in_axes=(0, None))(rows, 2.0, scale=zt.ones(3))
    same(got, {"y": (rows["x"][0] ** 2.0, rows["x"][1])})


@pytestmark_fast
def test_nested() -> None:
    x, y = tensor(3, 4), tensor(5, 4)
    product = zt.vmap(zt.vmap(lambda x, y: (x * y).sum(), in_axes=(None, 0)), in_axes=(0, None))
    same(product(x, y), x @ y.T)
    same(zt.vmap(zt.vmap(ops.outer))(tensor(2, 3, 4) * 0, tensor(2, 3, 5)), zt.zeros((2, 3, 4, 5)))


@pytestmark_fast
def test_inside_and_outside_of_derivatives() -> None:
    w, x = tensor(4), tensor(3, 4)

    def total(w: Any) -> Any:
        return zt.vmap(lambda x: ops.exp(x @ w))(x).sum()

    same(zt.grad(total)(w), (ops.exp(x @ w).reshape((3, 1)) * x).sum(axis=0))
    value, slope = zt.vmap(zt.value_and_grad(lambda x: (x ** 3.0).sum()))(x)
    same((value, slope), ((x ** 3.0).sum(axis=1), 3.0 * x ** 2.0))
    _, change = zt.vmap(lambda x, t: zt.jvp(lambda x: x * x, [x], [t]))(x, x)
    same(change, 2.0 * x * x)
    same(zt.vmap(lambda x: zt.vjp(lambda x: x * x, x)[1](x)[0])(x), 2.0 * x * x)
    same(zt.vmap(zt.hessian(lambda x: (x ** 3.0).sum()))(x),
         ops.expand_dims(6.0 * x, -1) * zt.eye(4))
    second = zt.grad(lambda x: zt.vmap(zt.grad(lambda x: (x ** 3.0).sum()))(x).sum())
    same(second(x), 6.0 * x)


@pytestmark_fast
def test_compiled_and_captured_tensors() -> None:
    w, x = tensor(4), tensor(3, 4)
    inner = zt.compiled(lambda x: (x * w).sum())
    same(zt.vmap(inner)(x), x @ w)
    same(zt.compiled(zt.vmap(inner))(x), x @ w)
    pending = w * 2.0
    same(zt.vmap(lambda x: x + pending)(x), x + w * 2.0)


@pytestmark_fast
def test_layers_and_models() -> None:
    model = zt.Sequential([zt.layers.Input((8, 8, 3)), zt.layers.Conv2D(8, 3, activation="relu"),
                           zt.layers.Conv2D(4, 3, padding="same"), zt.layers.Flatten(),
                           zt.layers.Dense(2)])
    x = tensor(3, 8, 8, 3)
    same(zt.vmap(lambda image: model(ops.expand_dims(image, 0))[0])(x), model(x))

    def loss(image: Any) -> Any:
        return (model(ops.expand_dims(image, 0)) ** 2.0).sum()

    same(zt.vmap(zt.grad(loss))(x), zt.grad(lambda x: (model(x) ** 2.0).sum())(x))


@pytestmark_fast
def test_several_models_at_once() -> None:
    model = zt.Sequential([zt.layers.Input((8, 8, 8)), zt.layers.Conv2D(4, 3, padding="same"),
                           zt.layers.Flatten(), zt.layers.Dense(2)])
    x = tensor(2, 8, 8, 8)
    model(x)
    shapes = [w.shape for w in model.trainable_weights]
    stacked = [tensor(3, *s) * 0.1 for s in shapes]

    def loss(weights: Any) -> Any:
        return (model.stateless_call(weights, [], x)[0] ** 2.0).mean()

    each = [zt.grad(loss)([w[k] for w in stacked]) for k in range(3)]
    same(zt.vmap(zt.grad(loss))(stacked),
         [ops.stack(slopes, axis=0) for slopes in zip(*each, strict=True)])


@pytestmark_fast
def test_no_examples() -> None:
    got = zt.vmap(lambda x: (x.sum(), ops.sort(x)))(zt.zeros((0, 4)))
    same(got, (zt.zeros((0,)), zt.zeros((0, 4))))


@pytestmark_fast
def test_at_once() -> None:
    x = tensor(3, 4)
    with zt.lazy(False):
        same(zt.vmap(lambda x: ops.exp(x).sum())(x), ops.exp(x).sum(axis=1))


# -- errors ----------------------------------------------------------------------------------------


def test_arguments_without_examples() -> None:
    with pytest.raises(ShapeError, match="3 in argument 0, 4 in argument 1"):
        zt.vmap(ops.add)(tensor(3), tensor(4))
    with pytest.raises(ShapeError, match="no axis 0 of examples; use in_axes=None"):
        zt.vmap(ops.add)(tensor(3), 1.0)
    with pytest.raises(ShapeError, match="in_axes must give one"):
        zt.vmap(ops.add, in_axes=None)(tensor(3), 1.0)
    with pytest.raises(ShapeError, match="in_axes has 1 entries for 2 arguments"):
        zt.vmap(ops.add, in_axes=(0,))(tensor(3), tensor(3))
    with pytest.raises(ShapeError, match="in_axes must be an axis, None"):
        zt.vmap(ops.add, in_axes=("0", 1))(tensor(3), tensor(3))
    with pytest.raises(ShapeError, match="out_axes 2 is out of range"):
        zt.vmap(ops.exp, out_axes=2)(tensor(3, 4))
    with pytest.raises(ConfigError, match="function of tensors"):
        zt.vmap(tensor(3))


def test_results_that_differ_need_an_axis() -> None:
    with pytest.raises(ShapeError, match="must be an axis, not None"):
        zt.vmap(ops.exp, out_axes=None)(tensor(3, 4))


def test_values_are_unavailable_during_tracing() -> None:
    with pytest.raises(NotTraced, match="no value"):
        zt.vmap(lambda x: x if x.sum() > 0 else -x)(tensor(3, 4))
    with pytest.raises(NotTraced, match="must give a tensor"):
        zt.vmap(lambda x: 1.0)(tensor(3, 4))


def test_random_numbers_and_states_are_refused() -> None:
    with pytest.raises(Unsupported, match="random_bits"):
        zt.vmap(lambda x: x + zt.rand(4))(tensor(3, 4))
    adam = zt.optimizers.Adam()
    with pytest.raises(Unsupported, match="changes a state"):
        zt.vmap(lambda w: adam.update([w], [w])[0])(tensor(3, 4))


@pytestmark_fast
def test_random_numbers_from_outside_are_shared() -> None:
    zt.set_seed(3)
    first = zt.rand(2).numpy()
    zt.set_seed(3)
    noise = zt.rand(2)  # pending
    same(zt.vmap(lambda x: x + noise)(zt.zeros((3, 2))), zt.tensor(np.tile(first, (3, 1))))


@pytestmark_fast
def test_states_that_all_examples_share() -> None:
    sgd, w = zt.optimizers.SGD(0.5, momentum=0.9), zt.ones(2)

    def step(x: Any) -> Any:
        [new] = sgd.update([w], [w])
        return new * x

    for function, left in ((step, 0.5), (zt.compiled(step), 0.05)):  # the momentum grows
        same(zt.vmap(function)(zt.ones((3, 1))), zt.full((3, 2), left))
