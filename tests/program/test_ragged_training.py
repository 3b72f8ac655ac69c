"""Training on sequences of several sizes: grouping, statistics, PyTorch, and data that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.numpy_executable import compile_numpy
from tests.program.sequences import SIZES, as_new, compiled, data
from ztorch import layers as L
from ztorch.errors import DataError


def test_fit_groups_rows_by_length() -> None:
    random = np.random.default_rng(0)
    lengths = random.integers(1, 7, 50)
    x = [random.normal(size=(n, 4)).astype(np.float32) for n in lengths]
    y = np.stack([np.array([row.sum(), len(row)], np.float32) for row in x])
    program = compiled("mean", batch_size=8, optimizer="adam")
    sizes: list[tuple[int, int]] = []
    bind = program.executable.bind

    def watched(function: str) -> Any:
        call = bind(function)
        run = call.run

        def noted() -> None:
            sizes.append((int(call.inputs["real"].sum()), call.inputs["x"].shape[1]))
            run()

        call.run = noted  # type: ignore[method-assign]
        return call

    program.executable.bind = watched  # type: ignore[method-assign]
    history = program.fit(x, y, epochs=2, verbose=0)
    assert len(sizes) == 14 and sorted(n for n, _ in sizes) == [2, 2] + [8] * 12
    first, second = sizes[:7], sizes[7:]
    assert sorted(first) == sorted(second) and first != second and first != sorted(first)
    assert sum(size == 3 for _, size in first) == sum(n <= 3 for n in lengths) // 8
    again = compiled("mean", batch_size=8, optimizer="adam")
    assert again.fit(x, y, epochs=2, verbose=0).history == history.history
    loss = again.fit(x, y, epochs=12, verbose=0, validation_split=0.2).history
    assert loss["loss"][-1] < loss["loss"][0] and len(loss["val_loss"]) == 12


def test_twenty_steps_of_ragged_batches_equal_pytorch() -> None:
    torch = pytest.importorskip("torch")

    program = zt.Sequential([L.Input(("time", 4)), L.LSTM(6), L.Dense(2)], seed=2).compile(
        "cpu", batch_size=(2, 5), sizes=SIZES, loss="mse", optimizer=zt.optimizers.SGD(0.1))
    kernel, recurrent, bias, last, last_bias = (torch.tensor(w) for w in program.get_weights())
    lstm, dense = torch.nn.LSTM(4, 6, batch_first=True), torch.nn.Linear(6, 2)
    with torch.no_grad():
        for own, value in ((lstm.weight_ih_l0, kernel.T), (lstm.weight_hh_l0, recurrent.T),
                           (lstm.bias_ih_l0, bias), (lstm.bias_hh_l0, bias * 0),
                           (dense.weight, last.T), (dense.bias, last_bias)):
            own.copy_(value)
    lstm.bias_hh_l0.requires_grad = False
    step = torch.optim.SGD([*lstm.parameters(), *dense.parameters()], 0.1)
    random = np.random.default_rng(3)
    for k in range(20):
        rows = (1, 2, 3, 5)[k % 4]
        lengths = random.integers(1, (4, 7)[k % 2], rows)
        x = [random.normal(size=(n, 4)).astype(np.float32) for n in lengths]
        y = random.normal(size=(rows, 2)).astype(np.float32)
        packed = torch.nn.utils.rnn.pack_sequence([torch.from_numpy(row) for row in x],
                                                  enforce_sorted=False)
        _, (hidden, _) = lstm(packed)
        loss = torch.nn.functional.mse_loss(dense(hidden[0]), torch.from_numpy(y))
        step.zero_grad()
        loss.backward()
        step.step()
        assert program.train_on_batch(x, y) == pytest.approx(loss.item(), rel=2e-5)
    np.testing.assert_allclose(program.get_weights()[0], lstm.weight_ih_l0.detach().numpy().T,
                               rtol=0, atol=1e-5)


def test_batch_statistics_count_real_rows_and_steps_only() -> None:
    model = [L.Input((4,)), L.BatchNormalization(momentum=0.5), L.Dense(3)]
    program = zt.Sequential(model, seed=1).compile("cpu", batch_size=(2, 8), loss="mse",
                                                   optimizer="sgd")
    random = np.random.default_rng(0)
    for rows in (1, 2, 3, 7, 8) * 4:
        exact = compile_numpy(zt.Sequential(
            [L.Input((4,)), L.BatchNormalization(momentum=0.5), L.Dense(3)], seed=1), rows, "sgd", "mse")
        exact.set_weights(program.get_weights())
        x = (random.normal(size=(rows, 4)) * 3 + 5).astype(np.float32)
        y = random.normal(size=(rows, 3)).astype(np.float32)
        assert program.train_on_batch(x, y) == pytest.approx(exact.train_on_batch(x, y), rel=1e-5)
        for ours, theirs in zip(program.get_weights(), exact.get_weights(), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-6)


def test_words_in_two_sequences() -> None:
    """Ids, cross-attention, and two axes that vary apart."""
    def build(source: Any, target: Any) -> zt.Model:
        a = L.Input((source,), dtype="int32", name="source")
        b = L.Input((target,), dtype="int32", name="target")
        memory = L.TransformerEncoder(8, 2)(L.Embedding(20, 8, name="words")(a))
        y = L.TransformerDecoder(8, 2)(L.Embedding(30, 8, name="others")(b), memory)
        return zt.Model([a, b], L.Dense(30, activation="softmax")(y), seed=4)

    options = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"],
               "optimizer": "sgd"}
    program = build("from", "to").compile("cpu", batch_size=4, sizes={"from": (4, 8), "to": 9},
                                          **options)
    assert program.metadata.open_axes == {"x/source": "from", "x/target": "to", "y": "to"}
    random = np.random.default_rng(1)
    x = {"source": random.integers(0, 20, (4, 3)), "target": random.integers(0, 30, (4, 5))}
    y = random.integers(0, 30, (4, 5))
    exact = compile_numpy(build(3, 5), 4, **options)
    exact.set_weights(program.get_weights())
    np.testing.assert_allclose(program.predict(x), exact.predict(x), rtol=0, atol=1e-6)
    assert program.train_on_batch(x, y) == pytest.approx(exact.train_on_batch(x, y), rel=1e-5)
    for ours, theirs in zip(program.get_weights(), exact.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)


def test_data_that_do_not_fit() -> None:
    program, other = as_new("attention"), as_new("mean")
    x, y = data("attention", 2, 5)
    for call, message in (
        (lambda: program.predict(data("attention", 2, 7)[0]),
         r"axis 'time' of x has size 7, and this program is compiled for sizes up to 6 "
         r"\(3, 6\); .*sizes=\{'time'"),
        (lambda: program.fit([x[0], np.zeros((19, 4))], y), "axis 'time' of x has size 19"),
        (lambda: program.predict([x[0], np.zeros((0, 4))]), r"x\[1\] is empty"),
        (lambda: program.predict([x[0], np.zeros((3, 5))]), r"x\[1\] has shape \(3, 5\)"),
        (lambda: program.predict(np.zeros((2, 0, 4))), "x is empty.*one step"),
        (lambda: program.predict(np.zeros((2, 4, 5))), r"x has shape \(2, 4, 5\), but the model "
         r"takes \(N, time, 4\): rows whose axis 'time' may have any size up to 6"),
        (lambda: program.predict([]), "x is empty"),
        (lambda: program.evaluate(x, y[:, :4]),
         "row 0 of y has 4 steps along axis 'time', and 5 in another input"),
        (lambda: program.evaluate(x, [y[0]]), "x has 2 rows but y has 1"),
        (lambda: other.evaluate([x[0], x[1][:2]], y[:1, 0]), "x has 2 rows but y has 1"),
    ):
        with pytest.raises(DataError, match=message):
            call()
