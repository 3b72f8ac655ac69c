"""Values, Python's operators on them, graphs and their text."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np
import pytest

from tests.cases.grouping import together
from ztorch import layers as L
from ztorch import ops
from ztorch.dtypes import boolean, f64
from ztorch.errors import ShapeError, UnknownName
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, constant, leaf, normal_axes, op
from ztorch.graph.value import Graph, Value, layer_scope, show, topological
from ztorch.layers.context import Context
from ztorch.layers.weight import Weight

X = leaf("input", "x", (2, 3), "float32")
DATA = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)


def value(y: Value) -> np.ndarray:
    return evaluate([y], {X: DATA})[0]


@together()
@pytest.mark.parametrize("formula", [
    lambda x: x + 1, lambda x: 1 + x, lambda x: x - 1.5, lambda x: 1.5 - x, lambda x: 2 * x,
    lambda x: x / 2, lambda x: 2 / x, lambda x: x ** 2, lambda x: 2 ** x, lambda x: x % 2,
    lambda x: -x, lambda x: abs(x - 2), lambda x: x < 3, lambda x: x <= 3, lambda x: x > 3, lambda x: x >= 3,
    lambda x: x[0], lambda x: x[..., 1:], lambda x: x + DATA, lambda x: DATA - x,
    lambda x: x * np.float32(3), lambda x: x @ np.ones((3, 2), np.float32)])
def test_operators_equal_numpy(formula: Callable) -> None:
    want = formula(DATA)
    got = value(formula(X))
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_numbers_adopt_the_dtype_of_the_other_operand() -> None:
    for d in ("float16", "bfloat16", "float64", "int8"):
        x = leaf("input", "x", (2,), d)
        assert str((x + 1).dtype) == str((1 - x).dtype) == d
    assert (X + np.ones(3, np.float64)).dtype == X.dtype  # float arrays adopt it, too


def test_values_are_compared_by_element_and_have_no_truth() -> None:
    other = leaf("input", "x", (2, 3), "float32")
    assert len({X, other, X}) == 2
    assert [(other != X).op.name, (X == 0).op.name] == ["not_equal", "equal"]
    assert (X == 0).dtype is boolean and X is not None and (X == None) is False  # noqa: E711
    with pytest.raises(TypeError, match=r"ops\.where"):
        bool(X < 1)
    with pytest.raises(TypeError, match="cannot be iterated"):
        list(X)


def test_sizes() -> None:
    assert (X.rank, X.size, X.nbytes) == (2, 6, 24)
    scalar = leaf("state", "s", (), "bool")
    assert (scalar.rank, scalar.size, scalar.nbytes) == (0, 1, 1)
    assert repr(X) == "<leaf x f32[2x3]>" and repr(scalar) == "<leaf s bool[scalar]>"


def test_every_value_comes_after_its_arguments() -> None:
    y = ops.softmax(ops.exp(X) + X)
    order = topological([y, X])
    place = {v: k for k, v in enumerate(order)}
    assert len(place) == len(order)
    assert all(place[a] < place[v] for v in order for a in v.args)


def test_a_very_deep_graph_is_no_problem() -> None:
    y = X
    for _ in range(5000):
        y = -y
    assert len(topological([y])) == 5001


def test_graph_roots_and_leaves() -> None:
    w = leaf("state", "w", (2, 3), "float32")
    graph = Graph({"y": X * w}, {"w": w + 1.0})
    assert graph.leaves("input") == [X] and graph.leaves("state") == [w]
    swapped = graph.with_roots(reversed(graph.roots))
    assert swapped.outputs["y"] is graph.updates["w"]
    assert swapped.updates["w"] is graph.outputs["y"]


def test_text_names_layers_and_updates() -> None:
    w = leaf("state", "w", (3,), "float32")
    with layer_scope("dense"):
        y = X * w
    text = show(Graph({"y": y}, {"w": w}))
    assert "mul" in text and "# dense" in text and "y = v3" in text and "w <- v1" in text


def test_layers_are_remembered_and_nest() -> None:
    with layer_scope("outer"):
        a = -X
        with layer_scope("inner"):
            b = -X
        c = -X
    assert [v.layer for v in (a, b, c, -X)] == ["outer", "inner", "outer", ""]


def test_errors_name_layer_shapes_and_fix() -> None:
    y = leaf("input", "y", (4, 5), "float32")
    with layer_scope("dense_2"), pytest.raises(ShapeError) as caught:
        X + y
    for part in ("layer 'dense_2'", "(2, 3)", "(4, 5)", "must be equal or 1"):
        assert part in str(caught.value)


def test_dtypes_do_not_mix_silently() -> None:
    with pytest.raises(ShapeError, match=r"float32 and int32 do not mix; use ops\.cast"):
        X + leaf("input", "i", (2, 3), "int32")
    with pytest.raises(ShapeError, match="does not take int32"):
        ops.exp(leaf("input", "i", (2, 3), "int32"))
    with pytest.raises(ShapeError, match="bool condition"):
        ops.where(X, X, X)


def test_axes() -> None:
    assert normal_axes(None, 3) == (0, 1, 2)
    assert normal_axes((-1, 0), 3) == (0, 2)
    with pytest.raises(ShapeError, match="axis 3 is out of range for rank 3; use -3 to 2"):
        normal_axes(3, 3)


def test_registry_suggests_names_and_refuses_duplicates() -> None:
    with pytest.raises(UnknownName, match="did you mean 'softmax'"):
        OPS.sofmax  # noqa: B018
    with pytest.raises(AssertionError, match="registered twice"):
        op(name="relu")(lambda x: x)


def test_constants_hold_any_dtype() -> None:
    for d in ("float16", "bfloat16", "int8", "uint64", "bool"):
        c = constant([0, 1, 1], d)
        assert str(c.dtype) == d
        np.testing.assert_array_equal(evaluate([c], {})[0].astype(int), [0, 1, 1])


def test_bfloat16_rounds_after_every_op() -> None:
    x = leaf("input", "x", (), "bfloat16")
    [y] = evaluate([(x + 1.0) - 256.0], {x: np.array(256.0, np.float32)})
    assert y == 0.0  # 257 has one bit too many
    [exact] = evaluate([(x + 1.0) - 256.0], {x: np.array(256.0)}, oracle=True)
    assert exact == 1.0


def test_overflow_of_float16_is_detected_in_float64() -> None:
    """From the number on that rounds to above 65504; smaller ones keep their digits."""
    x = leaf("input", "x", (4,), f64)
    numbers = {x: np.array([65519.5, 65520.0, -65520.0, 1.0001])}
    [y] = evaluate([ops.cast(x, "float16")], numbers, oracle=True)
    np.testing.assert_array_equal(y, [65519.5, np.inf, -np.inf, 1.0001])


def test_values_are_looked_up_by_identity() -> None:
    weak: weakref.WeakKeyDictionary[Weight, int] = weakref.WeakKeyDictionary()

    class Looked(L.Layer):
        def build(self, input_shape: tuple[int, ...]) -> None:
            self.scale = self.add_weight("scale", input_shape[-1:], "ones")

        def call(self, x: Value, context: Context) -> Value:
            weak[self.scale] = weak.setdefault(self.scale, 0) + 1
            return x * context.read(self.scale)

    layer = Looked()
    layer(np.ones((2, 3)))
    layer(np.ones((4, 3)))
    [calls] = weak.values()
    assert calls > 1
