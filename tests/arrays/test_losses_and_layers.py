"""Losses, metrics, layers and random numbers on arrays, as in Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.grouping import together
from ztorch import layers as L
from ztorch.errors import ConfigError, ShapeError, UnknownName, Unsupported

random = np.random.default_rng(8)
REAL, NEAR = random.random((6, 4)), random.random((6, 4))
LABELS = np.array([0, 1, 2, 3, 1, 2])
YES = np.round(REAL)
WEIGHTS = random.random(6)


def of_keras(x: Any) -> np.ndarray:
    return np.asarray(references.keras().ops.convert_to_numpy(x))


@together()
@pytest.mark.parametrize("name, y, reduction, weights", [
    ("MeanSquaredError", REAL, "sum_over_batch_size", None),
    ("MeanSquaredError", REAL, "sum", WEIGHTS),
    ("Huber", REAL, "mean_with_sample_weight", WEIGHTS),
    ("CosineSimilarity", REAL, None, WEIGHTS),
    ("Hinge", YES, None, None),
    ("BinaryCrossentropy", YES, "sum_over_batch_size", WEIGHTS),
    ("SparseCategoricalCrossentropy", LABELS, "sum_over_batch_size", WEIGHTS),
    ("KLDivergence", REAL, "sum", None)])
def test_losses_give_keras_numbers(name: str, y: np.ndarray, reduction: str | None,
                                   weights: np.ndarray | None) -> None:
    ours = getattr(zt.losses, name)(reduction=reduction, name="mine")
    theirs = getattr(references.keras().losses, name)(reduction=reduction)
    assert ours.name == "mine" and zt.losses.get(
        {"class_name": name, "config": ours.get_config()}).get_config() == ours.get_config()
    np.testing.assert_allclose(ours(y, NEAR, sample_weight=weights).numpy(),
                               of_keras(theirs(y, NEAR, sample_weight=weights)), rtol=1e-5)


@together()
@pytest.mark.parametrize("room, name, y", [
    ("losses", "mean_absolute_error", REAL), ("losses", "categorical_crossentropy", YES),
    ("losses", "sparse_categorical_crossentropy", LABELS), ("metrics", "binary_accuracy", YES),
    ("metrics", "mean_squared_error", REAL)])
def test_functions_give_keras_numbers(room: str, name: str, y: np.ndarray) -> None:
    ours = getattr(getattr(zt, room), name)(y, NEAR)
    theirs = getattr(getattr(references.keras(), room), name)(y, NEAR)
    np.testing.assert_allclose(ours.numpy(), of_keras(theirs), rtol=1e-5)


@together()
@pytest.mark.parametrize("name, y, arguments", [
    ("AUC", YES, {}), ("MeanSquaredError", REAL, {}), ("R2Score", REAL, {}),
    ("SparseCategoricalAccuracy", LABELS, {}), ("Precision", YES, {"thresholds": 0.6}),
    ("SparseCategoricalCrossentropy", LABELS, {"from_logits": True})])
def test_metrics_add_up_batches(name: str, y: np.ndarray, arguments: dict[str, Any]) -> None:
    ours = getattr(zt.metrics, name)(**arguments)
    theirs = getattr(references.keras().metrics, name)(**arguments)
    with pytest.raises(ConfigError, match="no result before update_state"):
        ours.result()
    for rows in (slice(0, 2), slice(2, 6)):
        for metric in (ours, theirs):
            metric.update_state(y[rows], NEAR[rows], sample_weight=WEIGHTS[rows])
    np.testing.assert_allclose(ours.result().numpy(), of_keras(theirs.result()), rtol=1e-5)
    for metric in (ours, theirs):
        metric.reset_state()
    np.testing.assert_array_equal(ours.result().numpy(), of_keras(theirs.result()))  # of no numbers
    np.testing.assert_allclose(ours(y, NEAR).numpy(), of_keras(theirs(y, NEAR)), rtol=1e-5)


def test_mean_of_numbers() -> None:
    mean = zt.metrics.Mean("loss")
    assert mean([1.0, 3.0], sample_weight=[1.0, 3.0]).item() == 2.5
    assert mean(0.5).item() == np.float32(2.1)
    mean.reset_state()
    assert mean(4).item() == 4.0


def test_names_of_functions_compile_a_model() -> None:
    model = zt.Sequential([L.Input((4,)), L.Dense(1)])
    model.compile("cpu:scalar", optimizer="sgd", loss=zt.losses.mean_squared_error,
                  metrics=[zt.metrics.MeanAbsoluteError(), zt.losses.mean_squared_error])
    scores = model.evaluate(NEAR, REAL[:, :1], verbose=0, return_dict=True)
    assert list(scores) == ["loss", "mean_absolute_error", "mean_squared_error"]
    assert scores["loss"] == scores["mean_squared_error"]
    summed = zt.losses.MeanSquaredError(reduction="sum")
    with pytest.raises(Unsupported, match="reduction='none'"):
        model.compile("cpu:scalar", loss=zt.losses.MeanSquaredError(reduction="none"))
        model.evaluate(NEAR, REAL[:, :1], verbose=0)
    with pytest.raises(UnknownName, match="unknown reduction 'avg'"):
        zt.losses.Huber(reduction="avg")
    with pytest.raises(ShapeError, match="sample_weight does not fit"):
        summed(REAL, NEAR, sample_weight=[1.0, 2.0])


def test_layers_and_models_accept_arrays() -> None:
    dense = L.Dense(3)
    y = dense(NEAR)  # float64, as NumPy makes it
    kernel, bias = dense.get_weights()
    assert isinstance(y, zt.Tensor) and y.dtype == zt.ones(1).dtype
    np.testing.assert_allclose(y.numpy(), NEAR @ kernel + bias, rtol=1e-5)
    np.testing.assert_array_equal(L.Add()([NEAR, YES]).numpy(), (
        NEAR.astype("f") + YES.astype("f")))
    assert L.Embedding(4, 2)(LABELS).shape == (6, 2)
    model = zt.Sequential([L.Input((4,)), dense])
    np.testing.assert_array_equal(model(NEAR).numpy(), y.numpy())


def test_random_numbers() -> None:
    zt.set_seed(3)
    normal = zt.random.normal((4000,), mean=1.0, stddev=2.0).numpy()
    assert abs(normal.mean() - 1.0) < 0.1 and abs(normal.std() - 2.0) < 0.1
    cut = zt.random.truncated_normal((4000,), seed=1).numpy()
    assert abs(cut).max() <= 2.0 and abs(cut.std() - 0.8796) < 0.03  # that of the cut distribution
    seed = zt.random.SeedGenerator(7)
    first, second = (zt.random.uniform((3,), 2.0, 3.0, seed=seed).tolist() for _ in range(2))
    assert first != second and 2.0 <= min(first + second) < max(first + second) < 3.0
    assert zt.random.uniform((3,), seed=7).tolist() == zt.random.uniform((3,), seed=7).tolist()
    drawn = zt.random.categorical(np.log([[0.5, 0.5, 1e-9]]), 200, seed=1).numpy()
    assert drawn.shape == (1, 200) and set(drawn[0]) == {0, 1} and 60 < drawn.sum() < 140
    assert sorted(zt.random.shuffle(LABELS, seed=2).tolist()) == sorted(LABELS.tolist())
    with pytest.raises(ConfigError, match="2\\*\\*64"):
        zt.random.SeedGenerator(-1)
    for wrong in (lambda: zt.random.uniform(0, 1, (5,)), lambda: zt.random.normal(0.0, 1.0, (5,)),
                  lambda: zt.random.truncated_normal(0, 1, (5,))):  # NumPy's order
        with pytest.raises(ConfigError, match=r"shape comes first.*\(5,\) is in the place"):
            wrong()
    for negative in (zt.rand, zt.random.normal, lambda n: zt.random.gamma((n,), 1.0)):
        with pytest.raises(ShapeError, match="a size is negative"):
            negative(-2)


@pytest.mark.parametrize(("low", "high", "dtype"), [
    (1000.0, 1001.0, "float32"), (1.0, 2.0, "bfloat16"), (-2.0, -1.0, "float16"), (-0.5, 0.0, "float16")])
def test_uniform_numbers_stay_below_their_bound(low: float, high: float, dtype: str) -> None:
    """Also where the sum of the lower bound and a draw rounds up to it."""
    drawn = zt.ops.cast(zt.random.uniform((1 << 17,), low, high, dtype, seed=1), "float64").numpy()
    assert low <= drawn.min() and drawn.max() < high
    assert abs(drawn.mean() - (low + high) / 2) < 0.01
    assert zt.random.uniform((3,), high, high, seed=1).tolist() == [high] * 3


def test_a_range_that_ends_at_a_float_zero_has_floats() -> None:
    x = zt.arange(-3, 0.0)
    assert x.dtype == "float32" and x.tolist() == [-3.0, -2.0, -1.0]
    assert zt.arange(-3, 0).dtype == "int64"


def test_random_numbers_of_other_distributions() -> None:
    """Means, is_broadcast and ends, and one number in a thousand at each end of the gamma distribution."""
    for alpha in (0.4, 1.0, 7.5):
        x = zt.random.gamma((6000,), alpha, seed=5).numpy()
        assert abs(x.mean() / alpha - 1) < 0.06 and abs(x.var() / alpha - 1) < 0.15 and x.min() > 0
    at = np.quantile(zt.random.gamma((20000,), 1.0, seed=6).numpy(), [0.001, 0.5, 0.999])
    np.testing.assert_allclose(at, -np.log1p(-np.array([0.001, 0.5, 0.999])), rtol=0.25)
    alphas = np.array([0.5, 3.0], np.float32)
    x = zt.random.beta((6000, 2), alphas, 2.0, seed=7).numpy()
    np.testing.assert_allclose(x.mean(0), alphas / (alphas + 2), atol=0.02)
    np.testing.assert_allclose(x.var(0), alphas * 2 / ((alphas + 2) ** 2 * (alphas + 3)), atol=0.01)
    assert 0 <= x.min() <= x.max() <= 1
    x = zt.random.beta((6000,), 0.004, 0.001, seed=7).numpy()  # most powers of both are too small
    assert 0 <= x.min() <= x.max() <= 1 and abs(x.mean() - 0.8) < 0.02 and abs(x.var() - 0.16) < 0.01
    x = zt.random.binomial((6000, 2), np.array([4, 12]), 0.3, seed=8).numpy()
    np.testing.assert_allclose(x.mean(0), [1.2, 3.6], atol=0.1)
    np.testing.assert_allclose(x.var(0), [0.84, 2.52], atol=0.15)
    assert set(np.unique(x[:, 0])) == {0, 1, 2, 3, 4}
    with pytest.raises(Unsupported, match="at most 4096, not 5000"):
        zt.random.binomial((2,), 5000, 0.5)


def test_random_numbers_in_layers_differ_by_step() -> None:
    class Noise(L.Layer):
        def __init__(self, seed: Any) -> None:
            super().__init__()
            self.source = seed

        def call(self, x: Any) -> Any:
            return x * 0.0 + zt.random.normal(zt.ops.shape(x), seed=self.source)

    x = np.zeros((2, 3), np.float32)
    moving, still = Noise(zt.random.SeedGenerator(1)), Noise(5)
    assert moving(x).tolist() != moving(x).tolist()
    assert still(x).tolist() == still(x).tolist() != [[0.0] * 3] * 2


def test_beta_numbers_in_a_model() -> None:
    class Ends(L.Layer):
        def call(self, x: Any) -> Any:
            return x + zt.random.beta((500, 4), 0.004, 0.001, seed=3)

    y = zt.Sequential([zt.Input((4,), batch_size=500), Ends()]).predict(np.zeros((500, 4), np.float32))
    assert 0 <= y.min() <= y.max() <= 1 and abs(y.mean() - 0.8) < 0.03


def test_losses_of_a_call_are_those_that_layers_and_regularizers_add() -> None:
    class Inner(zt.layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(0.1 * zt.ops.sum(x, axis=-1))  # one for each row
            return x

    class Outer(zt.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.dense = zt.layers.Dense(2, kernel_regularizer=zt.regularizers.L2(0.5))
            self.inner = Inner()

        def call(self, x: Any) -> Any:
            return self.inner(self.dense(x))

    layer, x = Outer(), np.arange(6.0, dtype=np.float32).reshape(2, 3)
    layer(zt.tensor(x + 7.0))
    y = layer(zt.tensor(x)).numpy()  # the last call counts
    kernel = layer.dense.kernel.numpy()
    expected = [0.1 * y.sum(-1).mean(), 0.5 * (kernel ** 2).sum()]
    np.testing.assert_allclose([loss.item() for loss in layer.losses], expected, rtol=1e-5)

    def total(weights: list[Any]) -> Any:
        _, _, losses = layer.stateless_call(weights, [], zt.tensor(x), return_losses=True)
        return sum(losses)

    weights = [zt.tensor(w.numpy()) for w in layer.trainable_weights]
    value, (of_kernel, of_bias) = zt.value_and_grad(total)(weights)
    np.testing.assert_allclose(value.item(), sum(expected), rtol=1e-5)
    np.testing.assert_allclose(of_bias.numpy(), [0.1, 0.1], rtol=1e-5)
    by_row = 0.1 * np.repeat(x.mean(0)[:, None], 2, 1)
    np.testing.assert_allclose(of_kernel.numpy(), by_row + kernel, rtol=1e-5)
