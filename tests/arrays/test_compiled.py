"""zt.compiled: arguments and results, inputs and compiled-in constants, closures and errors."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import ops
from ztorch.arrays import functions
from ztorch.errors import ConfigError, ShapeError

pytestmark = pytest.mark.usefixtures("by_numpy")

Pair = namedtuple("Pair", "a b")
X = zt.tensor([1.0, 2.0])


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that are compiled from now on."""
    names: list[str] = []
    real = functions._trace

    def counted(function: Any, name: str, *rest: Any) -> Any:
        names.append(name)
        return real(function, name, *rest)

    monkeypatch.setattr(functions, "_trace", counted)
    return names


def test_trees_as_arguments_and_results() -> None:
    @zt.compiled
    def f(pair: Any, settings: Any, *rest: Any, scale: Any = None) -> Any:
        total = pair.a + settings["x"][0] + rest[0]
        return Pair(total, {"z": [total * scale, None], "a": ()})

    got = f(Pair(X, None), {"x": (X * 2.0,), "note": "text"}, X, scale=X)
    assert isinstance(got, Pair) and got.a.tolist() == [4.0, 8.0] and got.b["z"][1] is None
    assert got.b["z"][0].tolist() == [4.0, 16.0] and got.b["a"] == () and [*got.b] == ["a", "z"]
    assert zt.compiled(lambda p: p["b"])(OrderedDict(b=X, a=X)).tolist() == [1.0, 2.0]
    assert zt.compiled(lambda p: p[1] + p["k"])({1: X, "k": X}).tolist() == [2.0, 4.0]


def test_floats_are_inputs_and_other_plain_values_are_compiled_in(traces: list[str], builds: list[str]) -> None:
    @zt.compiled
    def f(x: Any, k: Any, how: Any = "times") -> Any:
        return x * k if how == "times" else x + k

    for k in (1.0, 2.5, -0.0, float("inf"), float("nan")):
        np.testing.assert_array_equal(f(X, k).numpy(), X.numpy() * np.float32(k))
    assert len(traces) == len(builds) == 1 and f(X, 2.0).dtype.long == "float32"
    for k in (2, 3, True, 2):
        assert f(X, k).tolist() == [float(k), 2.0 * k]
    assert len(traces) == 4
    assert f(X, 2.0, "plus").tolist() == [3.0, 4.0] and f(X, 2.0, how="times").tolist() == [2.0, 4.0]
    assert f(zt.tensor([1, 2]), 2.0).dtype.long == "float64"
    assert f(X.astype("float16"), 2.0).dtype.long == "float16"
    assert f(X, np.float32(3)).tolist() == [3.0, 6.0] and f(X, np.float64(3)).dtype.long == "float64"


def test_compiled_once_for_each_shape_and_dtype(traces: list[str]) -> None:
    f = zt.compiled(lambda x: x * 2.0)
    for x in (X, X + 1.0, zt.ones(3), X, zt.ones(2, "float64"), zt.ones(3), zt.ones((1, 2))):
        np.testing.assert_array_equal(f(x).numpy(), x.numpy() * 2)
    assert len(traces) == 4


def test_arrays_come_back_as_arrays() -> None:
    a = np.array([1.0, 2.0])
    got, same = zt.compiled(lambda x: (x * 2.0, x))(a)
    assert isinstance(got, np.ndarray) and isinstance(same, np.ndarray) and not np.shares_memory(same, a)
    got[0] = 9
    assert isinstance(zt.compiled(lambda x, y: x + y)(a, X), zt.Tensor)
    assert isinstance(zt.compiled(lambda x, k: x * k)(a, 2.0), np.ndarray)
    assert zt.compiled(lambda: zt.ones(2) * 2.0)().tolist() == [2.0, 2.0]


def test_results_that_are_arguments_constants_or_twice_the_same() -> None:
    outside = zt.tensor([5.0])

    @zt.compiled
    def f(x: Any, y: Any) -> Any:
        z = x + y
        return x, z, z, y, outside, z.reshape(2), zt.zeros(1), x

    got = [t.tolist() for t in f(X, X)]
    assert got == [[1, 2], [2, 4], [2, 4], [1, 2], [5], [2, 4], [0], [1, 2]]
    places = {t.node.block.place for t in f(X, X)}
    assert len(places) == 8 and X.node.block.place not in places


def test_closures_over_tensors() -> None:
    w = zt.tensor([10.0])
    pending = w * 2.0
    f = zt.compiled(lambda x: x * w + pending)
    assert f(X).tolist() == [30.0, 40.0]
    w = zt.tensor([0.0])  # another tensor for the name: the compiled function keeps the first
    assert f(X).tolist() == [30.0, 40.0]
    pending = None
    assert f(X + 1.0).tolist() == [40.0, 50.0]


def test_functions_within_functions(traces: list[str]) -> None:
    inner = zt.compiled(lambda x: x * 2.0)
    outer = zt.compiled(lambda x: inner(x) + inner(x + 1.0))
    assert outer(X).tolist() == [6.0, 10.0] and len(traces) == 1
    assert inner(outer(X)).tolist() == [12.0, 20.0]


def test_pending_arguments_are_computed_first() -> None:
    f = zt.compiled(lambda x: x * 2.0)
    y = X + 1.0
    assert f(y).tolist() == [4.0, 6.0] and y.node.block is not None


def test_values_while_a_function_is_compiled() -> None:
    seen: list[Any] = []

    @zt.compiled
    def f(x: Any) -> Any:
        seen.extend([x.shape, x.dtype.long, x.ndim, len(x), x.device, repr(x)])
        total = zt.zeros(2)
        for row in x:
            total = total + row
        for _ in range(300):
            total = total + 1.0
        return total

    assert f(zt.ones((3, 2))).tolist() == [303.0, 303.0]
    assert seen == [(3, 2), "float32", 2, 3, "cpu", "<tensor float32[3, 2] of a function that is being compiled>"]


@pytest.mark.parametrize("look", [
    lambda x: x if x.sum() > 0.0 else -x, lambda x: x * x.sum().item(), lambda x: x[x > 0.0],
    lambda x: np.linalg.det(x), lambda x: float(x[0]) * x, lambda x: range(x[0].astype("int32")),
    lambda x: x.tolist(), lambda x: x.to("cpu", copy=True),
], ids=["if", "item", "mask", "numpy", "float", "index", "tolist", "to"])
def test_values_are_unavailable_during_tracing(look: Any) -> None:
    for _ in range(2):
        with pytest.raises((ConfigError, TypeError), match="no value while") as caught:
            zt.compiled(look)(X)
        assert "(float32[2])" in str(caught.value)
    assert (X * 2.0).tolist() == [2.0, 4.0]


def test_tensors_that_leave_a_function_have_no_value() -> None:
    kept: list[Any] = []
    assert zt.compiled(lambda x: (kept.append(x * 2.0), x)[1])(X).tolist() == [1.0, 2.0]
    with pytest.raises(Exception, match="no value while"):
        kept[0].numpy()
    with pytest.raises(Exception, match="no value while"):
        (kept[0] + X).item()


@pytest.mark.parametrize(("wrong", "kind", "words"), [
    (lambda: zt.compiled(3), ConfigError, "takes a function"),
    (lambda: zt.compiled(lambda x: 3.0)(X), TypeError, "must give a tensor"),
    (lambda: zt.compiled(lambda x: None)(X), TypeError, "must give a tensor"),
    (lambda: zt.compiled(lambda x: (x, "a"))(X), TypeError, "not 'a'"),
    (lambda: zt.compiled(lambda x: x @ zt.ones(3))(X), ShapeError, r"in <lambda>\(float32\[2\]\)"),
    (lambda: zt.compiled(lambda x: x)(), TypeError, "missing 1 required"),
    (lambda: zt.compiled(lambda x, y: x)(X, object()), Exception, "argument 1"),
])
def test_wrong_calls_are_named(wrong: Any, kind: type[Exception], words: str) -> None:
    for _ in range(2):
        with pytest.raises(kind, match=words):
            wrong()


def test_an_error_of_the_function_comes_through() -> None:
    @zt.compiled
    def f(x: Any, fails: bool) -> Any:
        return x / (1 // 0) if fails else x

    with pytest.raises(ZeroDivisionError):
        f(X, True)
    assert f(X, False).tolist() == [1.0, 2.0] and (X + 1.0).tolist() == [2.0, 3.0]


def test_names_and_documentation_are_kept() -> None:
    @zt.compiled
    def area(x: Any) -> Any:
        """The area."""
        return x * x

    assert area.__name__ == "area" and area.__doc__ == "The area."


def test_methods_and_static_functions(traces: list[str]) -> None:
    class Layer:
        def __init__(self) -> None:
            self.w = zt.tensor([3.0])

        @zt.compiled
        def __call__(self, x: Any) -> Any:
            return x * self.w

    class Callable(Layer):
        pass

    layer, other = Layer(), Callable()
    assert layer(X).tolist() == other(X).tolist() == layer(X).tolist() == [3.0, 6.0]
    assert len(traces) == 2
    apply = zt.compiled(lambda f, x: f(x))
    assert apply(ops.exp, zt.tensor([0.0])).tolist() == [1.0] and apply(ops.neg, X).tolist() == [-1.0, -2.0]


def test_levels_of_the_cpu_share_memory() -> None:
    with zt.device("cpu:scalar"):
        assert zt.compiled(lambda x: x + 1.0)(X).tolist() == [2.0, 3.0]
