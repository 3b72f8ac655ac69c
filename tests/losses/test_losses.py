"""Losses and their gradients, against PyTorch and Keras' definitions; and far from zero."""

from __future__ import annotations

import numpy as np
import pytest

from tests import references
from ztorch import layers as L
from ztorch import losses
from ztorch.dtypes import f32, i32
from ztorch.errors import ConfigError, ShapeError, UnknownName
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, leaf
from ztorch.model.sequential import Sequential

random = np.random.default_rng(11)
B, C = 6, 4
REAL = random.normal(size=(B, C)) * 2
PREDICTED = random.normal(size=(B, C)) * 2
LABELS = np.array([0, 3, 1, 1, 2, 0], np.int32)
YES = (random.random((B, C)) > 0.5).astype(np.float64)
SOFT = random.dirichlet(np.ones(C), B)


def scored(loss, y_true, y_pred, dtype="float64"):
    """(values a row, gradient of their sum) by the oracle."""
    p = leaf("input", "p", y_pred.shape, dtype)
    y = leaf("input", "y", y_true.shape, "int32" if y_true.dtype.kind == "i" else dtype)
    row = losses.get(loss).per_row(y, p)
    assert row.shape == y_pred.shape[:1] and row.dtype == p.dtype
    oracle = dtype == "float64"
    return evaluate([row, *gradients(row, [p])], {p: y_pred, y: y_true}, oracle=oracle)


def torch_scored(function, y_pred):
    torch = references.torch()
    p = torch.tensor(y_pred, requires_grad=True)
    row = function(torch, torch.nn.functional, p)
    row.sum().backward()
    return row.detach().numpy(), p.grad.numpy()


def tensor(array):
    import torch

    return torch.tensor(array).long() if array.dtype.kind == "i" else torch.tensor(array)


@pytest.mark.parametrize("loss, y, reference", [
    ("mse", REAL, lambda t, F, p: F.mse_loss(p, tensor(REAL), reduction="none").mean(1)),
    ("mae", REAL, lambda t, F, p: F.l1_loss(p, tensor(REAL), reduction="none").mean(1)),
    ("huber", REAL, lambda t, F, p: F.huber_loss(p, tensor(REAL), reduction="none").mean(1)),
    (losses.Huber(delta=0.4), REAL, lambda t, F, p: F.huber_loss(
        p, tensor(REAL), reduction="none", delta=0.4).mean(1)),
    (losses.LogCosh(), REAL, lambda t, F, p: t.log(t.cosh(p - tensor(REAL))).mean(1)),
    (losses.BinaryCrossentropy(from_logits=True), YES, lambda t, F, p:
        F.binary_cross_entropy_with_logits(p, tensor(YES), reduction="none").mean(1)),
    (losses.BinaryCrossentropy(True, label_smoothing=0.2), YES, lambda t, F, p:
        F.binary_cross_entropy_with_logits(p, tensor(YES * 0.8 + 0.1), reduction="none").mean(1)),
    (losses.CategoricalCrossentropy(from_logits=True), SOFT, lambda t, F, p:
        F.cross_entropy(p, tensor(SOFT), reduction="none")),
    (losses.CategoricalCrossentropy(True, label_smoothing=0.1), SOFT, lambda t, F, p:
        F.cross_entropy(p, tensor(SOFT), reduction="none", label_smoothing=0.1)),
    (losses.SparseCategoricalCrossentropy(from_logits=True), LABELS, lambda t, F, p:
        F.cross_entropy(p, tensor(LABELS), reduction="none")),
    (losses.SparseCategoricalCrossentropy(True, int(LABELS[0])), LABELS, lambda t, F, p:
        F.cross_entropy(p, tensor(LABELS), reduction="none", ignore_index=int(LABELS[0]))),
    ("hinge", YES, lambda t, F, p: (1 - (2 * tensor(YES) - 1) * p).clamp(0).mean(1)),
    ("squared_hinge", YES, lambda t, F, p: ((1 - (2 * tensor(YES) - 1) * p).clamp(0) ** 2).mean(1)),
    ("categorical_hinge", np.eye(C)[LABELS], lambda t, F, p: (
        1 + (p * (1 - tensor(np.eye(C)[LABELS]))).amax(1) - (p * tensor(np.eye(C)[LABELS])).sum(1)).clamp(0)),
    ("mape", REAL, lambda t, F, p: 100 * ((tensor(REAL) - p) / tensor(REAL)).abs().mean(1)),
    ("msle", abs(REAL), lambda t, F, p: (
        (tensor(abs(REAL)) + 1).log() - (p.clamp(1e-7) + 1).log()).square().mean(1)),
], ids=lambda v: getattr(v, "name", v) if isinstance(v, (str, losses.Loss)) else "")
def test_values_and_gradients_agree_with_pytorch(loss, y, reference):
    expected = torch_scored(reference, PREDICTED)
    for ours, theirs in zip(scored(loss, y, PREDICTED), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss, y, of", [
    ("binary_crossentropy", YES, "sigmoid"), ("categorical_crossentropy", SOFT, "softmax"),
    ("sparse_categorical_crossentropy", LABELS, "softmax")])
def test_probabilities_and_logits_agree(loss, y, of):
    p = leaf("input", "p", (B, C), "float64")
    t = leaf("input", "y", y.shape, "int32" if y is LABELS else "float64")
    plain, logits = losses.Loss.get(loss), losses.Loss.named(loss)(from_logits=True)
    a, b, c = evaluate([plain.per_row(t, getattr(OPS, of)(p)), logits.per_row(t, p),
                        plain.per_row(t, getattr(OPS, of)(p), logits=p)],
                       {p: PREDICTED, t: y}, oracle=True)
    np.testing.assert_allclose(a, b, rtol=1e-6)
    np.testing.assert_allclose(c, b, rtol=1e-14)


def test_labels_of_a_class_may_not_count():
    torch, rng = references.torch(), np.random.default_rng(0)
    y = rng.integers(-1, 3, (4, 5))
    x = rng.normal(size=(4, 5, 3)).astype(np.float32)
    expected = torch.nn.functional.cross_entropy(torch.tensor(x).reshape(-1, 3), torch.tensor(y).reshape(-1), ignore_index=-1).item()
    loss = losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    assert float(loss(y, x)) == pytest.approx(expected, rel=1e-6)
    model = Sequential([L.Input((5, 3)), L.Dense(3, use_bias=False, kernel_initializer="identity")])
    model.compile("cpu:scalar", batch_size=3, loss=loss, metrics=["accuracy"])
    sums = [float(loss(y[k:k + 3], x[k:k + 3])) * len(y[k:k + 3]) for k in (0, 3)]  # as Keras: a mean of batches
    assert model.evaluate(x, y, verbose=0)[0] == pytest.approx(sum(sums) / 4, rel=1e-5)


def test_probabilities_are_clipped():
    certain = np.array([[1.0, 0.0], [0.0, 1.0]])
    wrong = np.array([[0.0, 1.0], [1.0, 0.0]])
    for dtype in ("float32", "float64"):
        for loss in ("binary_crossentropy", "categorical_crossentropy"):
            value, gradient = scored(loss, wrong, certain, dtype)
            np.testing.assert_allclose(value, -np.log(1e-7), rtol=1e-2)
            assert np.isfinite(gradient).all()
            assert (scored(loss, certain, certain, dtype)[0] < 1e-6).all()


@pytest.mark.parametrize("loss, y", [
    (losses.BinaryCrossentropy(True), np.array([[1.0, 0.0]])),
    (losses.CategoricalCrossentropy(True), np.array([[1.0, 0.0]])),
    (losses.SparseCategoricalCrossentropy(True), np.array([0], np.int32))], ids=lambda v: "")
@pytest.mark.parametrize("size", [1e2, 1e4, 3e38])
def test_losses_of_huge_logits_are_finite(loss, y, size):
    right, wrong = np.array([[size, -size]]), np.array([[-size, size]])
    if size > 1e30:
        right, wrong = right / 4, wrong / 4  # so that their difference is a float32
    value, gradient = scored(loss, y, wrong, "float32")
    assert np.isfinite(value).all() and value >= size / 4 and np.isfinite(gradient).all()
    value, gradient = scored(loss, y, right, "float32")
    assert value < 1e-37 and (abs(gradient) < 1e-37).all()


def test_small_losses_are_precise():
    logits = np.array([[0.0, -15.0, -16.0]])
    expected = np.log1p(np.exp(-15.0) + np.exp(-16.0))
    value = scored(losses.SparseCategoricalCrossentropy(True), np.array([0], np.int32), logits)[0]
    np.testing.assert_allclose(value, expected, rtol=1e-8)


@pytest.mark.parametrize("last", [
    [L.Dense(3, activation="softmax")], [L.Dense(3), L.Softmax()],
    [L.Dense(3), L.Activation("softmax")]], ids=["dense", "layer", "activation"])
def test_a_model_ending_in_softmax_trains_on_its_logits(last):
    """Logits 200 apart: probabilities would clip the loss to 16 and its gradient to 0."""
    model = Sequential([L.Input((3,)), *last])
    model.set_weights([np.eye(3) * 200, np.zeros(3)])
    graph = model.trace(1, loss="sparse_categorical_crossentropy").functions["evaluate"]
    one = {"x": np.eye(3)[:1], "y": np.array([1]), "w": np.ones(1), "real": np.ones(1)}
    [loss] = evaluate([graph.outputs["loss"]],
                      {v: one[v.attrs["name"]] for v in graph.leaves("input")})
    np.testing.assert_allclose(loss, 200.0, rtol=1e-6)


def test_other_activations_do_not_pass_their_inputs_as_logits():
    model = Sequential([L.Input((3,)), L.Dense(3, activation="sigmoid")], name="m")
    model.set_weights([np.eye(3), np.zeros(3)])
    graph = model.trace(1, loss="sparse_categorical_crossentropy").functions["evaluate"]
    one = {"x": np.eye(3)[:1], "y": np.array([1]), "w": np.ones(1), "real": np.ones(1)}
    [loss] = evaluate([graph.outputs["loss"]],
                      {v: one[v.attrs["name"]] for v in graph.leaves("input")}, oracle=True)
    p = 1 / (1 + np.exp(-np.eye(3)[0]))
    np.testing.assert_allclose(loss, -np.log(p[1] / p.sum()), rtol=1e-6)


def test_positions_beyond_rows_are_averaged():
    p, y = random.normal(size=(2, 5, 3)), np.array([[0, 1, 2, 0, 1]] * 2, np.int32)
    value = scored(losses.SparseCategoricalCrossentropy(True), y, p)[0]
    logs = p - np.log(np.exp(p).sum(-1, keepdims=True))
    np.testing.assert_allclose(value, -np.take_along_axis(logs, y[..., None], -1).mean((1, 2)))


def test_errors_describe_the_expected_targets():
    sparse = losses.get("sparse_categorical_crossentropy").target((8, 10), f32)
    assert (sparse.shape, sparse.dtype, sparse.classes) == ((8,), i32, 10)
    assert losses.get("mse").target((8, 2), f32).shape == (8, 2)


@pytest.mark.parametrize("loss", ["categorical_crossentropy", "sparse_categorical_crossentropy"])
def test_classes_need_two_outputs(loss):
    with pytest.raises(ShapeError, match=r"at least 2 classes.*binary_crossentropy"):
        losses.get(loss).target((8, 1), f32)


def test_names_like_keras():
    for name in ("mse", "MSE", "mean_squared_error", "MeanSquaredError"):
        assert losses.get(name).name == "mean_squared_error"
    with pytest.raises(UnknownName, match=r"did you mean 'huber'"):
        losses.get("hubber")
    with pytest.raises(ConfigError, match=r"not a valid loss; give a name such as 'mean_squared_error'"):
        losses.get(3)
    again = losses.get({"class_name": "Huber", "config": losses.Huber(0.3).get_config()})
    assert again.delta == 0.3


@pytest.mark.parametrize("make", [lambda: losses.Huber(0), lambda: losses.Huber(float("nan")),
                                  lambda: losses.BinaryCrossentropy(label_smoothing=1.5)])
def test_bad_arguments(make):
    with pytest.raises(ConfigError):
        make()


def test_a_function_is_a_loss():
    def cubed(y_true, y_pred):
        return OPS.abs(y_true - y_pred) * OPS.square(y_true - y_pred)

    assert losses.get(cubed).name == "cubed"
    np.testing.assert_allclose(scored(cubed, REAL, PREDICTED)[0],
                               (abs(REAL - PREDICTED) ** 3).mean(1))


def test_agrees_with_keras():
    keras = references.keras()
    probabilities = np.exp(PREDICTED) / np.exp(PREDICTED).sum(1, keepdims=True)
    yes_probability = 1 / (1 + np.exp(-PREDICTED))
    for name, y, p in [("categorical_crossentropy", SOFT, probabilities),
                       ("sparse_categorical_crossentropy", LABELS, probabilities),
                       ("binary_crossentropy", YES, yes_probability),
                       ("kl_divergence", SOFT, probabilities), ("log_cosh", REAL, PREDICTED),
                       ("huber", REAL, PREDICTED), ("hinge", YES, PREDICTED),
                       ("mape", REAL, PREDICTED), ("msle", abs(REAL), PREDICTED),
                       ("msle", REAL, abs(PREDICTED)), ("poisson", abs(REAL), abs(PREDICTED)),
                       ("squared_hinge", YES, PREDICTED),
                       ("categorical_hinge", np.eye(C)[LABELS], PREDICTED)]:
        theirs = keras.ops.convert_to_numpy(keras.losses.get(name)(y, p))
        np.testing.assert_allclose(scored(name, y, p)[0], theirs, rtol=1e-5, err_msg=name)


def test_pairs_leave_out_rows_that_fill_up_a_batch():
    """Circle: the loss of 5 rows in a batch of 8 is that of the 5, and so are the steps."""
    x = PREDICTED[:5].astype(np.float32)

    def trained(batch_size):
        model = Sequential([L.Input((C,)), L.Dense(3), L.UnitNormalization()], seed=3)
        model.compile("cpu:scalar", batch_size=batch_size, optimizer="sgd", loss=losses.Circle(gamma=4.0))
        return model.evaluate(x, LABELS[:5], verbose=0), model.fit(x, LABELS[:5], epochs=3, verbose=0).history["loss"]

    np.testing.assert_allclose(*(np.hstack(trained(size)) for size in (5, 8)), rtol=1e-5)


def test_losses_of_classes_and_regions_equal_keras():
    keras = references.keras()
    probabilities = np.exp(PREDICTED) / np.exp(PREDICTED).sum(1, keepdims=True)
    yes = 1 / (1 + np.exp(-PREDICTED))
    for name, arguments, y, p in [
            ("CosineSimilarity", {}, REAL, PREDICTED),
            ("BinaryFocalCrossentropy", {}, YES, yes),
            ("BinaryFocalCrossentropy", {"apply_class_balancing": True, "gamma": 1.5,
                                         "label_smoothing": 0.1, "alpha": 0.3}, YES, yes),
            ("BinaryFocalCrossentropy", {"from_logits": True}, YES, PREDICTED),
            ("CategoricalFocalCrossentropy", {}, SOFT, probabilities),
            ("CategoricalFocalCrossentropy", {"from_logits": True, "alpha": 0.5, "gamma": 3.0,
                                              "label_smoothing": 0.2}, SOFT, PREDICTED),
            ("CategoricalGeneralizedCrossEntropy", {"q": 0.7}, LABELS, probabilities),
            ("Circle", {"gamma": 3.0, "margin": 0.3}, LABELS, PREDICTED / np.linalg.norm(PREDICTED, axis=1, keepdims=True)),
            ("Dice", {"axis": (1,)}, YES, yes),
            ("Tversky", {"alpha": 0.3, "beta": 0.7, "axis": (1,)}, YES, yes)]:
        theirs = getattr(keras.losses, name)(**arguments, reduction=None)(y, p)
        values, gradient = scored(getattr(losses, name)(**arguments), y, p)
        np.testing.assert_allclose(values, keras.ops.convert_to_numpy(theirs), rtol=1e-5, err_msg=name)
        assert np.isfinite(gradient).all() and abs(gradient).max() > 0
    assert float(losses.Dice(axis=(0, 1))(YES, yes)) == float(losses.Dice()(YES, yes))
    assert float(losses.Dice(reduction="mean_with_sample_weight", axis=1)(YES, yes, np.zeros(len(YES)))) == 0


def test_labels_of_ctc_equal_pytorch():
    """CTC: rows with repeated labels, few labels, as many as fit, and none; and its gradient."""
    torch = references.torch()
    y = np.array([[1, 2, 2, 0], [3, 0, 0, 0], [1, 2, 3, 1], [0, 0, 0, 0], [2, 2, 2, 2]], np.int32)
    logits = random.normal(size=(5, 7, 4)) * 2
    p = torch.tensor(logits, requires_grad=True)
    expected = torch.nn.functional.ctc_loss(
        p.log_softmax(-1).transpose(0, 1), torch.tensor(y).long(), torch.full((5,), 7),
        torch.tensor((y != 0).sum(1)), reduction="none")
    expected.sum().backward()
    values, gradient = scored(losses.CTC(max_length=4), y, logits)
    np.testing.assert_allclose(values, expected.detach().numpy(), rtol=1e-9)
    np.testing.assert_allclose(gradient, p.grad.numpy(), rtol=1e-7, atol=1e-10)
    with pytest.raises(ShapeError, match="logits \\(steps, classes\\) per row"):
        losses.CTC().target((5, 4), f32)


def test_custom_losses_as_in_keras():
    class Weighted(losses.Loss):
        def __init__(self, factor=2.0, name="weighted_mse"):
            super().__init__(name=name)
            self.factor = factor

        def call(self, y_true, y_pred):
            return OPS.mean(OPS.square(y_true - y_pred), axis=-1) * self.factor

    loss = Weighted(3.0)
    assert loss.name == "weighted_mse" and loss.get_config() == {"factor": 3.0, "name": "weighted_mse"}
    np.testing.assert_allclose(scored(loss, REAL, PREDICTED)[0],
                               3 * np.square(REAL - PREDICTED).mean(1))
    assert losses.MeanSquaredError(name="a").name == "a"
    assert repr(losses.MeanSquaredError()) == "MeanSquaredError()"
