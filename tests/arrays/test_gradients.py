"""Derivatives of functions of tensors, against PyTorch, formulas and finite differences."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.grouping import together
from ztorch import ops
from ztorch.errors import ConfigError, ShapeError

pytestmark = pytest.mark.usefixtures("by_numpy")

random = np.random.default_rng(7)


def tensor(*shape: int) -> Any:
    return zt.tensor(random.normal(size=shape))


def network(params: Any, x: Any) -> Any:
    hidden = ops.tanh(x @ params["layers"][0]["w"] + params["layers"][0]["b"])
    return ops.mean((hidden @ params["layers"][1]["w"]) ** 2.0)


def parameters() -> dict[str, Any]:
    return {"layers": [{"w": tensor(3, 4), "b": tensor(4)}, {"w": tensor(4, 2)}]}


def test_trees_against_pytorch() -> None:
    torch = references.torch()
    params, x = parameters(), tensor(5, 3)
    value, grads = zt.value_and_grad(network)(params, x)
    w, b, v = (torch.tensor(t.numpy().copy(), requires_grad=True) for t in (
        params["layers"][0]["w"], params["layers"][0]["b"], params["layers"][1]["w"]))
    loss = ((torch.tanh(torch.tensor(x.numpy().copy()) @ w + b) @ v) ** 2).mean()
    loss.backward()
    assert value.item() == pytest.approx(loss.item(), rel=1e-12)
    assert [*grads] == ["layers"] and [*grads["layers"][0]] == ["b", "w"]
    for got, want in ((grads["layers"][0]["w"], w), (grads["layers"][0]["b"], b), (grads["layers"][1]["w"], v)):
        np.testing.assert_allclose(got.numpy(), want.grad.numpy(), rtol=1e-10)


class Pair(NamedTuple):
    a: Any
    b: Any


def test_arguments() -> None:
    x, y = tensor(3), tensor(3)

    def f(a: Any, b: Any, power: float = 2.0) -> Any:
        return (a ** power * b).sum()

    da, db = 2 * x.numpy() * y.numpy(), x.numpy() ** 2
    for argnums, want in ((0, da), (1, db), (-1, db), (-2, da)):
        np.testing.assert_allclose(zt.grad(f, argnums)(x, y).numpy(), want)
    for argnums in ((0, 1), [0, -1]):
        got = zt.grad(f, argnums)(x, y)
        assert isinstance(got, tuple)
        np.testing.assert_allclose(got[0].numpy(), da)
        np.testing.assert_allclose(got[1].numpy(), db)
    np.testing.assert_allclose(zt.grad(f, (1, 0))(x, y)[0].numpy(), db)
    np.testing.assert_allclose(zt.grad(f)(x, y, power=1.0).numpy(), y.numpy())
    np.testing.assert_allclose(zt.grad(f, (0,))(x, b=y)[0].numpy(), da)
    pair = zt.grad(lambda p: f(p.a, p.b))(Pair(x, y))
    assert isinstance(pair, Pair)
    np.testing.assert_allclose(pair.b.numpy(), db)
    assert zt.grad(lambda p: p["x"].sum())({"x": x, "nothing": None})["nothing"] is None
    assert zt.grad(lambda a: a * a)(3.0).item() == 6.0
    np.testing.assert_allclose(zt.grad(lambda a: (a * a).sum())(np.arange(3.0)).numpy(), 2 * np.arange(3.0))
    value, slope = zt.value_and_grad(lambda a: (a * y).sum())(x)
    assert value.item() == pytest.approx(float((x.numpy() * y.numpy()).sum())) and slope.shape == (3,)


def test_aux() -> None:
    x = tensor(3)

    def f(a: Any) -> Any:
        return (a * a).sum(), {"twice": a * 2.0, "nothing": None}

    (value, aux), slope = zt.value_and_grad(f, has_aux=True)(x)
    np.testing.assert_allclose(aux["twice"].numpy(), x.numpy() * 2)
    assert aux["nothing"] is None and value.shape == ()
    np.testing.assert_allclose(slope.numpy(), 2 * x.numpy())
    slope, aux = zt.grad(f, has_aux=True)(x)
    np.testing.assert_allclose(slope.numpy(), aux["twice"].numpy())


def test_what_does_not_depend() -> None:
    x, y = tensor(3), tensor(3)
    np.testing.assert_array_equal(zt.grad(lambda a, b: b.sum())(x, y).numpy(), np.zeros(3))
    np.testing.assert_array_equal(zt.grad(lambda a: zt.tensor(2.0))(x).numpy(), np.zeros(3))
    np.testing.assert_array_equal(zt.grad(lambda a: ops.stop_gradient(a * a).sum())(x).numpy(), np.zeros(3))
    np.testing.assert_allclose(zt.grad(lambda a: (ops.stop_gradient(a) * a).sum())(x).numpy(), x.numpy())
    np.testing.assert_array_equal(zt.grad(lambda a: ops.floor(a).sum())(x).numpy(), np.zeros(3))
    assert zt.grad(lambda a: a)(zt.tensor(4.0)).item() == 1.0
    value, slope = zt.value_and_grad(lambda a: a)(zt.tensor(4.0))
    assert (value.item(), slope.item()) == (4.0, 1.0)


def test_the_same_tensor_twice() -> None:
    x = tensor(3)
    for got in zt.grad(lambda a, b: (a * b).sum(), (0, 1))(x, x):
        np.testing.assert_allclose(got.numpy(), x.numpy())
    for got in zt.grad(lambda p: (p[0] * p[1]).sum())([x, x]):
        np.testing.assert_allclose(got.numpy(), x.numpy())


def test_gradients_of_gradients() -> None:
    quartic = [lambda x: x * x * x * x]
    for order, want in enumerate((32.0, 48.0, 48.0, 24.0, 0.0)):
        quartic.append(zt.grad(quartic[-1]))
        assert quartic[-1](zt.tensor(2.0, "float64")).item() == pytest.approx(want), order
    x = tensor(3)
    got = zt.grad(lambda a: (zt.grad(lambda b: ops.sin(b).sum())(a) * a).sum())(x)
    np.testing.assert_allclose(got.numpy(), np.cos(x.numpy()) - x.numpy() * np.sin(x.numpy()))


def test_inner_functions_over_outer_tensors() -> None:
    """d/dx (x * d/dy (x + y)) is 1: inner and outer derivatives must not be confused."""
    x = zt.tensor(3.0)
    assert zt.grad(lambda x: x * zt.grad(lambda y: x + y)(x))(x).item() == 1.0
    assert zt.grad(lambda x: x * zt.grad(lambda y: x * y)(x))(x).item() == 6.0
    assert zt.grad(lambda x: zt.grad(lambda y: x * x * y * y)(zt.tensor(2.0)))(x).item() == 24.0
    assert zt.grad(lambda x: x * zt.grad(lambda y: x * x)(zt.tensor(2.0)))(x).item() == 0.0
    outer = x * 2.0  # pending, over both
    assert zt.grad(lambda y: y * outer)(x).item() == 6.0
    assert zt.grad(lambda y: zt.jvp(lambda z: y * z * z, [y], [zt.tensor(1.0)])[1])(x).item() == 12.0


def test_branches_and_loops_on_values() -> None:
    def f(x: Any) -> Any:
        while x < 100.0:  # computes x; its recorded calls stay known
            x = x * x if x > 2.0 else x + 1.0
        return x

    for start in (1.5, 3.0, 200.0):
        step = 1e-6
        want = (float(f(zt.tensor(start + step, "float64"))) - float(f(zt.tensor(start - step, "float64")))) / 2 / step
        assert zt.grad(f)(zt.tensor(start, "float64")).item() == pytest.approx(want, rel=1e-6)

    def printed(x: Any) -> Any:
        y = x * 3.0
        assert y.tolist() == [3.0, 6.0] and str(y) == "[3. 6.]"
        return (y * y).sum()

    assert zt.grad(printed)(zt.tensor([1.0, 2.0])).tolist() == [18.0, 36.0]


def test_long_loops() -> None:
    def f(x: Any) -> Any:
        for _ in range(450):  # more than may be pending
            x = x * 1.01
        return x

    assert zt.grad(f)(zt.tensor(2.0, "float64")).item() == pytest.approx(1.01 ** 450)


def test_compiled_and_differentiated() -> None:
    x = tensor(4)
    f = zt.compiled(lambda a: (ops.sin(a) * a).sum())
    want = np.cos(x.numpy()) * x.numpy() + np.sin(x.numpy())
    for g in (zt.grad(f), zt.compiled(zt.grad(f)), zt.grad(lambda a: f(a * 1.0)), zt.compiled(
            lambda a: zt.value_and_grad(f)(a)[1]), zt.grad(lambda a: f(a) + zt.stop_gradient(f(a)) if hasattr(
                zt, "stop_gradient") else f(a))):
        np.testing.assert_allclose(g(x).numpy(), want)
        np.testing.assert_allclose(g(x * 1.0).numpy(), want)
    second = zt.compiled(zt.grad(lambda a: (zt.grad(f)(a) * a).sum()))
    v = x.numpy()
    np.testing.assert_allclose(second(x).numpy(), np.cos(v) * v + np.sin(v) + v * (2 * np.cos(v) - v * np.sin(v)))


def test_a_loop_compiles_gradients_once(builds: list[str]) -> None:
    slope = zt.grad(lambda w, k: ((w - k) ** 2.0).sum())
    w = zt.tensor([1.0, 2.0])
    for turn in range(6):
        w = w - slope(w, float(turn)) * 0.1
        w.realize()
    assert len(builds) == 2  # once, and once more since a number varies


def test_vjp_against_pytorch() -> None:
    torch = references.torch()
    a, b = tensor(3, 4), tensor(4, 2)

    def f(a: Any, b: Any) -> Any:
        return {"product": a @ b, "sums": [a.sum(axis=0), b.sum()]}

    result, pullback = zt.vjp(f, a, b)
    cotangents = {"product": tensor(3, 2), "sums": [tensor(4), tensor()]}
    ga, gb = pullback(cotangents)
    ta, tb = (torch.tensor(t.numpy().copy(), requires_grad=True) for t in (a, b))
    torch.autograd.backward([ta @ tb, ta.sum(0), tb.sum()], [torch.tensor(t.numpy().copy()) for t in (
        cotangents["product"], *cotangents["sums"])])
    np.testing.assert_allclose(result["product"].numpy(), a.numpy() @ b.numpy())
    np.testing.assert_allclose(ga.numpy(), ta.grad.numpy())
    np.testing.assert_allclose(gb.numpy(), tb.grad.numpy())
    ones = pullback({"product": zt.ones((3, 2)), "sums": [np.zeros(4), 0.0]})  # again, with others
    np.testing.assert_allclose(ones[0].numpy(), np.ones((3, 2)) @ b.numpy().T, rtol=1e-6)


def test_jvp_is_the_directional_derivative() -> None:
    x, y, dx, dy = tensor(3), tensor(3), tensor(3), tensor(3)

    def f(x: Any, y: Any) -> Any:
        return ops.exp(x) * y, (x * y).sum()

    (value, total), (along, slope) = zt.jvp(f, [x, y], [dx, dy])
    ex = np.exp(x.numpy())
    np.testing.assert_allclose(value.numpy(), ex * y.numpy())
    np.testing.assert_allclose(along.numpy(), ex * y.numpy() * dx.numpy() + ex * dy.numpy())
    assert slope.item() == pytest.approx(float((dx.numpy() * y.numpy() + x.numpy() * dy.numpy()).sum()))
    assert total.shape == ()
    identity = zt.jvp(lambda x: (x, zt.tensor([1.0])), [x], [dx])[1]
    np.testing.assert_allclose(identity[0].numpy(), dx.numpy())
    np.testing.assert_array_equal(identity[1].numpy(), [0.0])


def test_hessians_against_pytorch() -> None:
    torch = references.torch()
    x = tensor(2, 3)

    def f(m: Any, o: Any) -> Any:
        return (o.exp(m[0]) * m[1] ** 3.0).sum() + (m[0, 0] * m[1, 2] * m[0, 1])

    want = torch.autograd.functional.hessian(lambda m: f(m, torch), torch.tensor(x.numpy().copy()))
    np.testing.assert_allclose(zt.hessian(lambda m: f(m, ops))(x).numpy(), want.numpy(), atol=1e-12, strict=True)
    assert zt.hessian(lambda x: x * x * x)(zt.tensor(2.0)).item() == 12.0
    product = zt.jvp(zt.grad(lambda m: f(m, ops)), [x], [zt.ones((2, 3))])[1]  # of hessian and vector
    np.testing.assert_allclose(product.numpy(), want.numpy().sum((2, 3)), rtol=1e-10)


def test_jacobians_against_pytorch() -> None:
    torch, p, y = references.torch(), {"a": tensor(2, 3), "b": tensor(3)}, tensor(3, 4)

    def f(y: Any, p: Any, o: Any) -> Any:
        return {"m": o.sin(p["a"] * p["b"]) @ y, "n": [(p["a"] ** 2.0).sum()]}

    want = torch.func.jacrev(f, 1)(torch.tensor(y.numpy()), {k: torch.tensor(x.numpy()) for k, x in p.items()}, torch)
    for result in (zt.jacobian(f, 1)(y, p, ops), zt.compiled(lambda p: zt.jacobian(f, 1)(y, p, ops))(p)):
        for mine, other in ((result["m"], want["m"]), (result["n"][0], want["n"][0])):
            for k in p:
                np.testing.assert_allclose(mine[k].numpy(), other[k].numpy(), atol=1e-12)


def test_indexing_is_differentiated() -> None:
    x = tensor(4, 3)
    picked = zt.grad(lambda x: (x[[0, 0, 2]] * x[1]).sum() + x[::2, 1].sum() + x[x > 0.0].sum())(x)
    torch = references.torch()
    t = torch.tensor(x.numpy().copy(), requires_grad=True)
    ((t[[0, 0, 2]] * t[1]).sum() + t[::2, 1].sum() + t[t > 0].sum()).backward()
    np.testing.assert_allclose(picked.numpy(), t.grad.numpy())
    for row in range(8):  # rows that vary are looked up
        got = zt.grad(lambda x, row=row: (x[row % 4] ** 2.0).sum())(x).numpy()
        np.testing.assert_allclose(got, np.where(np.arange(4)[:, None] == row % 4, 2 * x.numpy(), 0))


def test_dtypes_of_gradients() -> None:
    for d in ("float16", "float32", "float64", "bfloat16"):
        slope = zt.grad(lambda x: (x * x).sum().astype("float32"))(zt.tensor([1.0, 2.0], dtype=d))
        assert slope.dtype.long == d and slope.tolist() == [2.0, 4.0]
    mixed = zt.grad(lambda x, n: (x * n).sum())(zt.tensor([1.0, 2.0]), zt.tensor([3, 4]))
    assert mixed.dtype.long == "float32" and mixed.tolist() == [3.0, 4.0]
    cast = zt.grad(lambda x: (zt.tensor(x, dtype="float64") ** 2.0).sum())(zt.tensor([1.0, 2.0]))
    assert cast.dtype.long == "float32" and cast.tolist() == [2.0, 4.0]


@together()
@pytest.mark.parametrize(("wrong", "kind", "words"), [
    (lambda x: zt.grad(lambda x: x * x)(x), ShapeError, r"float64\[3\]; use .sum\(\)"),
    (lambda x: zt.grad(lambda x: 3.0)(x), ShapeError, "not 3.0"),
    (lambda x: zt.grad(lambda x: (x > 0.0).any())(x), ShapeError, "bool"),
    (lambda x: zt.grad(lambda n: n.sum())(zt.tensor([1, 2])), ShapeError, "argument 0 is a tensor of int64"),
    (lambda x: zt.grad(lambda a: a.sum(), 1)(x), ConfigError, "argnums=1, but there are 1 positional arguments"),
    (lambda x: zt.grad(lambda a: a.sum(), -2)(x), ConfigError, "argnums=-2"),
    (lambda x: zt.grad(lambda a, b: a.sum(), (0, -2))(x, x), ConfigError, "twice"),
    (lambda x: zt.grad(lambda: x.sum())(), ConfigError, "there are 0 positional arguments"),
    (lambda x: zt.grad(3), ConfigError, "not 3"), (lambda x: zt.hessian(lambda x: x)(x), ShapeError, "one number"),
    (lambda x: zt.jacobian(lambda x: 3)(x), ShapeError, "not 3"), (lambda x: zt.jacobian(len, ()), ConfigError, "integer"),
    (lambda x: zt.vjp(lambda x: x, x)[1](zt.ones(2)), ShapeError, "cotangent"),
    (lambda x: zt.vjp(lambda x: (x, x), x)[1](zt.ones(3)), ShapeError, "each of 2 results"),
    (lambda x: zt.jvp(lambda x: x, [x], [zt.ones(2)]), ShapeError, "tangent"),
    (lambda x: zt.jvp(lambda x: x, [x], []), ShapeError, "a tangent for each of 1 tensors, not 0"),
    (lambda x: zt.grad(lambda x: (x.sum(), 3.0), has_aux=True)(x), ShapeError, "must be tensors, not 3.0"),
    (lambda x: zt.grad(lambda x: x.sum(), has_aux=True)(x), ShapeError, "pair"),
])
def test_wrong_calls_are_named(wrong: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        wrong(tensor(3))


def test_an_error_inside_leaves_nothing_behind() -> None:
    with pytest.raises(ZeroDivisionError):
        zt.grad(lambda x: x / (1 // 0))(tensor(3))
    assert (zt.tensor([1.0]) + 1.0).realize().node.operands == ()
