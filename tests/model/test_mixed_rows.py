"""Models that combine the rows of a batch: their batches are never padded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch import ops
from ztorch.compile.c_library import export_c
from ztorch.dtypes import i32
from ztorch.errors import DataError
from ztorch.graph.op import OPS, constant, leaf
from ztorch.graph.value import Graph
from ztorch.model.mixed_rows import mixing_op

X = np.random.default_rng(0).normal(size=(11, 6)).astype(np.float32)


def steps_of(x: Any, step: Callable[[Any, Any], Any], first: Any = None) -> Any:
    """The last state of a loop over the columns of x, by default with a state of its own for each row."""
    state = x[:, 0] * 0.0 if first is None else first
    return ops.scan(lambda s, row: (step(s, row), None), state, ops.transpose(x))[0]


MIXING: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: x - ops.mean(x, axis=0, keepdims=True),
    "largest of all": lambda x: x / ops.max(x),
    "first row": lambda x: x - x[0],
    "pairs": lambda x: ops.matmul(ops.matmul(x, ops.transpose(x)), x),
    "differences": lambda x: ops.sum(ops.abs(x[:, None] - x[None]), axis=1),
    "einsum": lambda x: ops.einsum("ij,kj->ik", x, x) @ x,
    "sort": lambda x: ops.sort(x, axis=0),
    "sum so far": lambda x: ops.cumsum(x, axis=0),
    "reversed": lambda x: x[::-1],
    "softmax": lambda x: ops.softmax(x, axis=0),
    "flat": lambda x: x + ops.sum(ops.reshape(x, (-1,))),
    "gathered": lambda x: ops.take(x, ops.argmax(x[:, 0]) + ops.zeros_like(x[:, 0], dtype="int32"), axis=0),
    "by the order of rows": lambda x: ops.take_along_axis(x, ops.argsort(x, axis=0), axis=0),
    "after a loop": lambda x: steps_of(x, lambda s, row: ops.tanh(s + row)) - ops.mean(
        steps_of(x, lambda s, row: s * 0.5 + row)),
    "in a loop": lambda x: steps_of(x, lambda s, row: ops.tanh(s + row - ops.mean(row))),
    "a state in a loop": lambda x: steps_of(x, lambda s, row: s * 0.5 + row + ops.max(s),
                                            ops.zeros((ops.shape(x)[0],))),
    "a loop over rows": lambda x: ops.scan(lambda s, row: (s + row, s), x[0] * 0.0, x)[1],
    "their number": lambda x: x * ops.shape(x)[0],
    "their number in a loop": lambda x: ops.fori_loop(0, x.shape[0], lambda k, s: s + 1.0, x),
    "counted": lambda x: x / ops.sum(ops.ones_like(x[:, 0])),
    "from 0 to 1": lambda x: x * ops.linspace(0.0, 1.0, x.shape[0])[:, None],
    "numbered from the last": lambda x: x * ops.arange(x.shape[0], dtype="float32")[::-1, None]}
SEPARATE: dict[str, Callable[[Any], Any]] = {
    "rows": lambda x: ops.softmax(x) + ops.sort(x) + ops.cumsum(x, axis=1) + x[:, :1],
    "reshaped": lambda x: ops.reshape(ops.reshape(x, (-1, 1)) * 2.0, (-1, 6)),
    "transposed": lambda x: ops.transpose(ops.sum(ops.transpose(x)[None], axis=0)),
    "products": lambda x: ops.einsum("bi,bi->b", x, x)[:, None] * x,
    "numbered": lambda x: x * ops.arange(x.shape[0], dtype="float32")[:, None],
    "twice as many": lambda x: ops.reshape(ops.reshape(x, (x.shape[0] * 2, 3)) * 2.0, (x.shape[0], 6)),
    "looked up": lambda x: ops.take(ops.arange(9, dtype="float32"), ops.cast(ops.abs(x), "int32")),
    "looked up in each row": lambda x: ops.take_along_axis(x, ops.argsort(x), axis=1),
    "placed in a table": lambda x: ops.cast(ops.searchsorted(np.linspace(-1, 1, 5, dtype="f"), x), "float32"),
    "a bias where rows come second": lambda x: ops.transpose(ops.reshape(ops.reshape(ops.transpose(
        ops.reshape(x, (-1, 3, 2)), (1, 0, 2)), (-1, 2)) @ np.eye(2, dtype="f") + np.ones(2, "f"),
        (3, -1, 2)), (1, 0, 2)),
    "a loop": lambda x: ops.softmax(steps_of(x, lambda s, row: steps_of(
        x, lambda t, other: ops.tanh(t + other), s) * row)[:, None] * x),
    "images": lambda x: ops.reshape(ops.max_pool(ops.reshape(x, (-1, 2, 3, 1)), (1, 3)), (-1, 2))}


def model_of(function: Callable[[Any], Any]) -> zt.Model:
    x = L.Input((6,))
    return zt.Model(x, L.Lambda(function)(x))


@pytest.mark.parametrize("name", MIXING)
def test_batches_of_any_size_are_computed_as_they_are(name: str) -> None:
    model = model_of(MIXING[name])
    want = [model(X[k:k + 4]).numpy() for k in (0, 4, 8)]
    np.testing.assert_allclose(model.predict(X, batch_size=4), np.concatenate(want), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.predict(X[:3]), model(X[:3]).numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.predict_on_batch(X[:2]), model(X[:2]).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SEPARATE)
def test_rows_that_are_separate_may_be_padded(name: str) -> None:
    program = model_of(SEPARATE[name]).compile("cpu:scalar", batch_size=8)
    assert program.metadata.whole_batches == ()


def test_code_that_knows_one_size_alone_sees_no_padding() -> None:
    program = model_of(lambda x: x * {1: 1.0, 8: 2.0}[x.shape[0]]).compile("cpu:scalar", batch_size=8)
    assert program.metadata.whole_batches == ("predict",)


def test_a_lookup_in_rows_that_are_one_axis_is_not_followed() -> None:
    """As windows of an imported network are: each row may keep to its own elements."""
    x = leaf("input", "x", (3, 4), "float32")
    flat = OPS.reshape(x, (12, 1))
    windows = OPS.take(flat, constant(np.arange(12), i32), axis=0)
    assert mixing_op(Graph({"y": windows}), [x], 3) is None
    found = mixing_op(Graph({"y": OPS.take(x, constant(np.arange(3), i32), axis=0)}), [x], 3)
    assert found is not None and found.op.name == "take"


def test_a_graph_for_one_more_row_shows_what_follows_from_their_number() -> None:
    def mixing(function: Callable[[Any, int], Any]) -> Any:
        x, y = (leaf("input", "x", (rows, 3), "float32") for rows in (4, 5))
        return mixing_op(Graph({"y": function(x, 4)}), [x], 4, larger=Graph({"y": function(y, 5)}))

    assert mixing(lambda x, rows: x * OPS.iota((rows, 3), 0, "float32")) is None
    counted = mixing(lambda x, rows: x / OPS.sum(OPS.iota((rows,), 0, "float32")))
    assert counted is not None and counted.op.name == "sum"
    assert mixing(lambda x, rows: x * rows) is not None


def test_losses_see_no_padding() -> None:
    x = L.Input((6,))
    centered = L.Lambda(MIXING["mean"])(x)
    model = zt.Model(x, L.Dense(1, kernel_initializer="ones", use_bias=False)(centered))
    model.compile(loss="mse", optimizer=zt.optimizers.SGD(0.1))
    want = (X - X.mean(0)).sum(1)
    np.testing.assert_allclose(model.evaluate(X, 0 * X[:, :1]), (want**2).mean(), rtol=1e-5)
    model.fit(X, 0 * X[:, :1], epochs=1, verbose=0, batch_size=11)
    slope = 2 * (want[:, None] * (X - X.mean(0))).mean(0)
    np.testing.assert_allclose(model.get_weights()[0][:, 0], 1 - 0.1 * slope, rtol=1e-5)


@pytest.mark.parametrize("own", [
    lambda y, p: ops.mean((p - ops.mean(p, axis=0)) ** 2, axis=-1),
    lambda y, p: ops.mean(ops.abs(p - y), axis=-1) * ops.shape(p)[0],
    lambda y, p: ops.mean((p - y) ** 2, axis=-1) / ops.sum(ops.ones_like(p[:, 0]))])
def test_losses_and_metrics_that_combine_or_count_rows_see_no_padding(own: Callable[[Any, Any], Any]) -> None:
    def own_score(y: Any, p: Any) -> Any:
        return own(y, p)

    y = np.roll(X, 1, axis=0)
    parts = [np.mean(own(zt.tensor(y[k:k + 8]), zt.tensor(X[k:k + 8])).numpy()) for k in (0, 8)]
    model = zt.Sequential([L.Input((6,)), L.Rescaling(1.0)])
    for loss, metrics in ((own_score, None), ("mse", [own_score])):
        model.compile(loss=loss, metrics=metrics)
        scores = model.evaluate(X, y, batch_size=8, verbose=0)
        np.testing.assert_allclose(scores[-1] if metrics else scores, np.average(parts, weights=[8, 3]), rtol=1e-5)


def test_layers_that_combine_rows_in_training_alone_see_no_padding() -> None:
    class Centered(zt.layers.Layer):
        def call(self, x: Any, training: bool = False) -> Any:
            return x - ops.mean(x, axis=0, keepdims=True) if training else x

    model = zt.Sequential([L.Input((6,)), L.BatchNormalization(), Centered(),
                           L.Dense(1, kernel_initializer="ones", use_bias=False)])
    model.compile(loss="mse", optimizer=zt.optimizers.SGD(0.0))
    loss = model.train_on_batch(X, 0 * X[:, :1])
    normal = (X - X.mean(0)) / np.sqrt(X.var(0) + 1e-3)
    np.testing.assert_allclose(loss, (normal.sum(1)**2).mean(), rtol=1e-5)
    assert model.program.metadata.whole_batches == ("evaluate", "train")


@pytest.mark.parametrize("term", [lambda x: ops.mean(x * x), lambda x: 0.01 * ops.sum(x * x),
                                  lambda x: ops.mean(ops.sum(x * x, axis=-1))])
def test_losses_that_layers_add_see_no_padding(term: Callable[[Any], Any]) -> None:
    class Added(zt.layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(term(x))
            return x

    model = zt.Sequential([L.Input((6,)), Added(), L.Dense(1, kernel_initializer="ones", use_bias=False)])
    model.compile(loss="mse", optimizer=zt.optimizers.SGD(0.0))
    of_parts = [(X[k:k + 8].sum(1)**2).mean() + float(term(zt.tensor(X[k:k + 8]))) for k in (0, 8)]
    want = np.average(of_parts, weights=[8, 3])
    np.testing.assert_allclose(model.evaluate(X, 0 * X[:, :1], batch_size=8, verbose=0), want, rtol=1e-5)
    history = model.fit(X, 0 * X[:, :1], batch_size=8, shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["loss"], [want], rtol=1e-5)
    parts = [(X[:8], 0 * X[:8, :1]), (X[8:], 0 * X[8:, :1])]
    for batches in (parts, Listed(parts), Loader(parts)):
        history = model.fit(batches, shuffle=False, verbose=0).history
        np.testing.assert_allclose(history["loss"], [want], rtol=1e-5)


class Listed(zt.utils.PyDataset):
    def __init__(self, parts: list[Any]):
        super().__init__()
        self.parts = parts

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, k: int) -> Any:
        return self.parts[k]


class Loader:
    """Has the attributes of a loader of PyTorch."""

    batch_size, dataset = 8, range(11)

    def __init__(self, parts: list[Any]):
        self.parts = parts

    def __iter__(self) -> Any:
        return iter(self.parts)


def test_batches_of_a_generator_are_predicted_as_they_are() -> None:
    """As in Keras: they are not joined."""
    want = np.concatenate([part * len(part) for part in (X[:4], X[4:8], X[8:])])
    for x in ((part for part in (X[:4], X[4:8], X[8:])), Loader([X[:4], X[4:8], X[8:]])):
        y = model_of(MIXING["their number"]).predict(x, verbose=0)
        np.testing.assert_allclose(y, want, rtol=1e-6)


def test_a_program_refuses_other_sizes() -> None:
    program = model_of(MIXING["mean"]).compile("cpu:scalar", batch_size=(2, 4))
    np.testing.assert_allclose(program.predict(X[:2]), X[:2] - X[:2].mean(0), atol=1e-6)
    with pytest.raises(DataError, match=r"a batch has 3 rows.*combines or counts the rows of a batch; use compile\(batch_size=\(2, 3, 4\)"):
        program.predict(X[:3])
    with pytest.raises(DataError, match="a batch has 1 rows"):
        program.predict(zt.tensor(X[:5]))


def test_c_has_no_function_that_pads(tmp_path: Any) -> None:
    for name, function in (("mixing", MIXING["mean"]), ("separate", SEPARATE["products"])):
        export_c(model_of(function).trace(batch_size=(2, 4)), tmp_path, device="cpu:scalar", name=name)
    assert "mixing_predict_any" not in (tmp_path / "mixing.h").read_text()
    assert "separate_predict_any" in (tmp_path / "separate.h").read_text()
