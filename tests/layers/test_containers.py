"""Layers made of layers: results, names, files and descriptions, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from tests import references
from tests.layers.built import build
from ztorch import layers as L
from ztorch import ops
from ztorch.dtypes import f64
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import leaf
from ztorch.layers import LAYERS, Context, States
from ztorch.model.sequential import Sequential

random = np.random.default_rng(6)


def run(layer, array, training=False):
    """(output, {path: weight}) in float64."""
    x = leaf("input", "x", array.shape, f64)
    context = Context(training, States(f64))
    y = layer(x, context)
    weights = {context.read(w): random.normal(size=w.shape) for w in layer.weights}
    named = {v.attrs["name"]: a for v, a in weights.items()}
    return evaluate([y], {x: array, **weights}, oracle=True)[0], named


# -- results ---------------------------------------------------------------------------------------


def test_residual_adds_its_input():
    x = random.normal(size=(3, 4))
    y, w = run(L.Residual(L.Dense(6, activation="tanh"), L.Dense(4), name="r"), x)
    hidden = np.tanh(x @ w["r/dense/kernel"] + w["r/dense/bias"])
    np.testing.assert_allclose(y, x + hidden @ w["r/dense_1/kernel"] + w["r/dense_1/bias"])


def test_residual_with_a_shortcut():
    x = random.normal(size=(3, 4))
    y, w = run(L.Residual(L.Dense(6), shortcut=L.Dense(6, use_bias=False, name="s"), name="r"), x)
    np.testing.assert_allclose(
        y, x @ w["r/dense/kernel"] + w["r/dense/bias"] + x @ w["r/s/kernel"])


MERGES = {"Add": lambda a, b: a + b, "Subtract": lambda a, b: a - b, "Multiply": lambda a, b: a * b,
          "Average": lambda a, b: (a + b) / 2, "Maximum": np.maximum, "Minimum": np.minimum,
          "Concatenate": lambda a, b: np.concatenate([a, b], -1)}


@pytest.mark.parametrize("name", MERGES)
def test_branches_are_merged_as_keras_does(name):
    keras = references.keras()
    x = random.normal(size=(3, 4)).astype(np.float32)
    layer = LAYERS[name](L.Dense(5, name="a"), L.Dense(5, name="b"), name="m")
    y, w = run(layer, x.astype(np.float64))
    a, b = (x @ w[f"m/{k}/kernel"] + w[f"m/{k}/bias"] for k in "ab")
    np.testing.assert_allclose(y, MERGES[name](a, b))
    theirs = getattr(keras.layers, name)()([a.astype(np.float32), b.astype(np.float32)])
    np.testing.assert_allclose(y, keras.ops.convert_to_numpy(theirs), atol=1e-5)


@pytest.mark.parametrize("merge", ["concat", "add", "subtract", "multiply", "average", "maximum",
                                   "minimum"])
def test_parallel_branches_are_merged(merge):
    x = random.normal(size=(3, 4))
    y, w = run(L.Parallel([L.Dense(5, name="a"), L.Dense(5, name="b")], merge=merge, name="p"), x)
    a, b = (x @ w[f"p/{k}/kernel"] + w[f"p/{k}/bias"] for k in "ab")
    np.testing.assert_allclose(y, MERGES[{"concat": "Concatenate"}.get(merge, merge.title())](a, b))


def test_parallel_with_a_merge_layer():
    x = random.normal(size=(2, 3, 4))
    y, _ = run(L.Parallel([L.Identity(name="a"), L.Identity(name="b")],
                          merge=L.Concatenate(axis=1)), x)
    np.testing.assert_array_equal(y, np.concatenate([x, x], 1))


def test_a_gate_of_a_row_applies_to_every_position():
    pooled = Sequential([L.Lambda(lambda x: ops.mean(x, axis=(1, 2))),
                         L.Dense(3, activation="sigmoid")], name="gate")
    x = random.normal(size=(2, 4, 5, 3))
    y, w = run(L.Multiply(L.Identity(), pooled, name="m"), x)
    z = x.mean((1, 2)) @ w["m/gate/dense/kernel"] + w["m/gate/dense/bias"]
    np.testing.assert_allclose(y, x / (1 + np.exp(-z))[:, None, None])


def test_concatenate_along_any_axis():
    x = random.normal(size=(2, 3, 4))
    y, _ = run(L.Concatenate(L.Identity(), L.Identity(), axis=1), x)
    np.testing.assert_array_equal(y, np.concatenate([x, x], 1))
    assert run(L.Concatenate(L.Identity(), L.Flatten(), name="f"), x[:, 0])[0].shape == (2, 8)


def test_time_distributed_is_the_layer_at_every_step():
    x = random.normal(size=(2, 3, 4, 5))
    y, w = run(L.TimeDistributed(Sequential([L.Flatten(), L.Dense(6)], name="each"), name="t"), x)
    expected = x.reshape(2, 3, 20) @ w["t/each/dense/kernel"] + w["t/each/dense/bias"]
    np.testing.assert_allclose(y, expected)


def test_a_loss_sees_the_logits_through_containers():
    scores = Sequential([L.Dense(3), L.Activation("softmax")])
    model = Sequential([L.Input((4, 5)), L.TimeDistributed(scores)])
    context = Context(states=States(f64))
    y = model.call(leaf("input", "x", (2, 4, 5), f64), context)
    activation, logits = context.probabilities[y]
    assert activation == "softmax" and logits.shape == y.shape == (2, 4, 3)


# -- mistakes --------------------------------------------------------------------------------------


def test_branches_that_part_name_the_layer_and_both_shapes():
    with pytest.raises(ShapeError, match=r"layer 'residual': .*give \(4, 5\) and \(4, 6\); they diverge "
                                         r"at layer 'dense_2', which turns \(4, 6\) into \(4, 5\)"):
        build(L.Input((4, 6)), L.Residual(L.Dense(8), L.Dense(6), L.Dense(5), L.ReLU()))
    with pytest.raises(ShapeError, match=r"diverge at layer 'flatten'.*add shortcut="):
        build(L.Input((4, 6)), L.Residual(L.Flatten(), L.Dense(6)))
    with pytest.raises(ShapeError, match=r"\(7,\) and \(8,\).*layer 'dense'.*shortcut, layer 's'"):
        build(L.Input((6,)), L.Residual(L.Dense(7), shortcut=L.Dense(8, name="s")))


def test_parallel_branches_name_the_layers_where_they_split():
    deep = Sequential([L.Dense(7, name="wide"), L.ReLU(), L.Dense(5, name="last"), L.Dropout(0.1)],
                      name="deep")
    with pytest.raises(ShapeError, match=r"layer 'parallel': branches 'plain' and 'deep' do not fit "
                                         r"together: \(6,\) and \(5,\); they diverge at layer 'plain', "
                                         r"which turns \(4,\) into \(6,\), and layer 'last', which "
                                         r"turns \(7,\) into \(5,\)"):
        build(L.Input((4,)), L.Parallel([L.Dense(6, name="plain"), deep], merge="add"))
    with pytest.raises(ShapeError, match=r"they diverge at the input of shape \(4, 3\), and layer "
                                         r"'flatten', which turns \(4, 3\) into \(12,\)"):
        build(L.Input((4, 3)), L.Concatenate(L.Identity(), L.Flatten()))


def test_errors_inside_name_the_full_path():
    with pytest.raises(ShapeError, match=r"layer 'outer/square': cannot reshape"):
        build(L.Input((6,)), Sequential([L.Reshape((4, 4), name="square")], name="outer"))


def test_branches_that_do_not_fit_are_named():
    with pytest.raises(ShapeError, match=r"layer 'add'.*'a' and 'b'.*\(4,\) and \(5,\)"):
        build(L.Input((3,)), L.Add(L.Dense(4, name="a"), L.Dense(5, name="b")))
    with pytest.raises(ShapeError, match=r"'a' and 'b' cannot be joined along axis 1: \(3, 4\) "
                                         r"and \(3, 5\)"):
        build(L.Input((3, 2)), L.Concatenate(L.Dense(4, name="a"), L.Dense(5, name="b"), axis=1))
    for axis in (0, 3, -3):
        with pytest.raises(ShapeError, match=r"axis .* is out of range"):
            build(L.Input((3, 2)), L.Concatenate(L.Identity(), L.Identity(), axis=axis))


@pytest.mark.parametrize(("make", "message"), [
    (lambda: L.Residual(), r"Residual needs layers"),
    (lambda: L.Parallel([]), r"Parallel needs branches"),
    (lambda: L.Parallel(L.Dense(2)), r"takes a list of branches, not <Dense 'dense'>"),
    (lambda: L.Parallel([L.Dense(2)], merge=L.Dense(2)), r"must be one of concat.*merge layer"),
    (lambda: L.Parallel([L.Dense(2)], merge="subtract"), r"takes 2 branches, not 1"),
    (lambda: L.Concatenate(1), r"write Concatenate\(axis=1\)"),
    (lambda: L.Dot(axes=(1, 2, 3)), r"Dot\(axes=\(1, 2, 3\)\)"),
    (lambda: L.Add([L.Dense(1)]), r"layer 'add' takes layers.*Sequential"),
    (lambda: L.Add(L.Dense), r"not the class Dense; write Dense\(10\)"),
    (lambda: L.Residual(L.Input((3,))), r"takes no Input"),
    (lambda: L.Subtract(L.Identity()), r"takes 2 branches, not 1"),
    (lambda: L.Concatenate(L.Identity(), axis="last"), r"axis='last'"),
    (lambda: L.Add(L.Dense(1, name="a"), L.Dense(1, name="a")), r"two layers named 'a'"),
    (lambda: L.Lambda(3), r"function of a tensor, not 3"),
    (lambda: L.Lambda(L.ReLU()), r"function of a tensor"),
    (lambda: L.TimeDistributed(L.Dense), r"takes layers, not the class Dense"),
], ids=lambda x: "given" if callable(x) else str(x))
def test_wrong_arguments(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(("function", "message"), [
    (lambda x: 3.0, r"layer 'lambda': its function returned float 3.0; return a tensor"),
    (lambda x: ops.sum(x), r"changed the batch axis: \(1, 4\) and \(\)"),
    (lambda x: ops.transpose(x), r"changed the batch axis"),
], ids=lambda x: "given" if callable(x) else str(x))
def test_functions_are_checked_when_the_model_is_built(function, message):
    with pytest.raises(ShapeError, match=message):
        build(L.Input((4,)), L.Lambda(function))


def test_functions_of_numbers_get_a_hint():
    """PyTorch's, and the same in losses and activations; also as the TypeError that it is."""
    torch = references.torch()
    mine = L.Lambda(torch.relu, name="mine")
    with pytest.raises(ConfigError, match=r"layer 'mine': its function.*relu\(\).*with zt\.ops"):
        build(L.Input((4,)), mine)
    with pytest.raises(TypeError, match=r"layer 'part/mine': .*ops\.relu\(x\), not with NumPy or Py"):
        build(L.Input((4,)), Sequential([L.Lambda(torch.relu, name="mine")], name="part"))
    with pytest.raises(ConfigError, match=r"layer 'a': its function.* a tensor has no 'tahn'; "
                                          r"did you mean 'tanh'\?"):
        build(L.Input((4,)), L.Dense(3, activation=lambda x: x.tahn(), name="a"))
    with pytest.raises(ConfigError, match=r"loss 'away': its function.*truth value.*; use ops\.where"):
        def away(y, p):
            return y - p if y > p else p - y
        Sequential([L.Input((4,)), L.Dense(1)]).trace(2, "sgd", away)


def test_unrelated_errors_are_not_changed():
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        build(L.Input((4,)), L.Lambda(lambda x: x * (1 / 0)))
    with pytest.raises(ConfigError, match=r"required positional argument: 'b'$"):
        build(L.Input((4,)), L.Lambda(lambda a, b: a + b))


def test_a_layer_has_one_parent():
    layer = L.Dense(3)
    with pytest.raises(ConfigError, match=r"'dense' is in layer 'add' twice"):
        L.Add(layer, layer)
    with pytest.raises(ConfigError, match=r"'dense' is in layer 'residual' and in layer 'add'; to share it"):
        build(L.Input((3,)), L.Residual(layer), L.Add(layer))
    model = Sequential([L.Input((3,))], name="m")
    with pytest.raises(ConfigError, match=r"'m' cannot contain itself"):
        model.add(Sequential([model]))


def test_time_distributed_needs_steps():
    with pytest.raises(ShapeError, match=r"layer 'time_distributed'.*\(time, features\).*\(4,\)"):
        build(L.Input((4,)), L.TimeDistributed(L.Dense(2)))
