"""Programs for sequences of several sizes: results are those of the exact size."""

from __future__ import annotations

import functools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.artifacts import changed
from tests.cases.available import device
from tests.cases.covering import one_in_each_run, share
from tests.cases.evaluating import evaluated
from ztorch import layers as L
from ztorch.errors import ArtifactError, DataError
from ztorch.program.program import Program

SIZES = (3, 6)


class SumOverTime(L.Layer):
    """Where there is no share of padding, the sum of all is that of real steps."""

    def call(self, x: Any, context: Any, mask: Any = None) -> Any:
        x = x if mask is None else zt.ops.where(zt.ops.expand_dims(mask, 2), x, 0.0)
        return zt.ops.sum(x * zt.ops.softplus(x), axis=1)


STEPS = {  # models that give something for each step
    "dense": lambda: [L.Dense(6, activation="tanh"), L.LayerNormalization(), L.Dropout(0.0)],
    "causal": lambda: [L.Conv1D(6, 3, dilation_rate=2, padding="causal"),
                       L.Activation("softmax")],
    "same": lambda: [L.Conv1D(6, 4, padding="same", activation="relu"),
                     L.Conv1D(5, 3, padding="same")],
    "attention": lambda: [L.TransformerEncoder(8, 2, rotary=True)],
    "decoder": lambda: [L.PositionEmbedding(sequence_length=6), L.TransformerDecoder(8, 2)],
    "sinusoidal": lambda: [L.SinusoidalPosition(), L.MultiHeadAttention(2, use_causal_mask=True)],
    "recurrent": lambda: [L.LSTM(3, return_sequences=True)],
    "both ways": lambda: [L.Bidirectional(L.SimpleRNN(3, return_sequences=True))],
    "distributed": lambda: [L.Lambda(lambda x: zt.ops.expand_dims(x, 3)),
                            L.TimeDistributed(L.LSTM(3)),
                            L.TimeDistributed(L.BatchNormalization(momentum=0.5))],
    "batch norm": lambda: [L.BatchNormalization(momentum=0.5), L.Dense(3)],
}
ROWS = {  # models that give something for each row
    "mean": lambda: [*STEPS["attention"](), L.GlobalAveragePooling1D()],
    "max": lambda: [*STEPS["same"](), L.GlobalMaxPooling1D(keepdims=True)],
    "lstm": lambda: [L.LSTM(5)],
    "backwards": lambda: [L.GRU(5, go_backwards=True)],
    "bidirectional": lambda: [L.Bidirectional(L.LSTM(3), merge_mode="sum")],
    "windows": lambda: [
        L.Conv1D(5, 3, strides=2, padding="same"), L.BatchNormalization(),
        L.MaxPooling1D(3, strides=2, padding="same"), L.GlobalAveragePooling1D()],
    "wide windows": lambda: [
        L.Conv1D(5, 2, padding=(2, 1), dilation_rate=2), L.MaxPooling1D(2), L.ReLU(),
        L.AveragePooling1D(2, strides=1, padding="same"), L.GlobalMaxPooling1D()],
    "softmax": lambda: [L.Softmax(axis=1), SumOverTime()],
    "strided": lambda: [
        L.SeparableConv1D(5, 4, strides=3, padding="same"),
        L.DepthwiseConv1D(3, strides=2, padding="causal"), L.LSTM(4)],
}
MODELS = {**STEPS, **ROWS}


def model(kind: str, size: Any = "time") -> zt.Sequential:
    return zt.Sequential([L.Input((size, 4)), *MODELS[kind](), L.Dense(2)], name="words", seed=5)


def compiled(kind: str, size: Any = "time", device: str = "cpu:scalar", **options: Any) -> Program:
    return model(kind, size).compile(device, **{
        "batch_size": 3, "loss": "mse", "optimizer": zt.optimizers.SGD(0.1), "metrics": ["mae"],
        **({"sizes": SIZES} if size == "time" else {}), **options})


@functools.cache
def kept(kind: str) -> tuple[Program, list[np.ndarray]]:
    """A program that tests share, and its first weights."""
    program = compiled(kind)
    return program, program.get_weights()


def as_new(kind: str) -> Program:
    """It has no states beside its weights: SGD has none."""
    program, first = kept(kind)
    program.set_weights(first)
    return program


def data(kind: str, rows: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(100 * rows + size)
    y = (rows, size, 2) if kind in STEPS else (rows, 1, 2) if kind == "max" else (rows, 2)
    return (random.normal(size=(rows, size, 4)).astype(np.float32),
            random.normal(size=y).astype(np.float32))


@pytest.mark.parametrize("kind", MODELS)
def test_results_are_those_of_the_exact_size(kind: str) -> None:
    program, first = kept(kind)
    for size in share((1, 5), [*MODELS].index(kind), 2):
        exact = compiled(kind, size)
        x, y = data(kind, 3, size)
        program.set_weights(first)
        exact.set_weights(first)
        np.testing.assert_allclose(program.predict(x), exact.predict(x), rtol=0, atol=1e-6)
        assert program.evaluate(x, y, verbose=0) == pytest.approx(
            exact.evaluate(x, y, verbose=0), rel=1e-5)
        for _ in range(2):
            assert program.train_on_batch(x, y) == pytest.approx(exact.train_on_batch(x, y),
                                                                 rel=1e-5)
        for ours, theirs in zip(program.get_weights(), exact.get_weights(), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", ["windows", "wide windows", "strided"])
def test_windows_are_those_of_every_exact_size(kind: str) -> None:
    """Where they begin depends on the size, and on its remainder where they are centred."""
    largest = model(kind).trace(1, sizes=13)
    x = np.random.default_rng(3).normal(size=(1, 13, 4)).astype(np.float32)
    for size in range(1, 14):
        exact = model(kind, size).trace(1)
        [want] = evaluated(exact, {"x": x[:, :size]})
        [got] = evaluated(largest, {"x": x, "lengths/time": np.array([size], np.int32)})
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6, err_msg=f"size {size}")


@pytest.mark.parametrize("function", ["predict", "train"])
@pytest.mark.parametrize("kind", MODELS)
def test_what_lies_in_the_padding_does_not_matter(kind: str, function: str) -> None:
    results = []
    lengths = np.array([4, 1, 6])
    for seed in range(2):
        program = as_new(kind)
        call = program.executable.bind(function)
        for name, port in call.inputs.items():
            port[...] = (lengths if name.startswith("lengths") else 1 if name in ("w", "real") else
                         np.random.default_rng(1).normal(size=port.shape))
            if port.shape[1:2] == (6,):
                for row, length in zip(port, lengths, strict=True):
                    row[length:] = np.random.default_rng(seed).normal(
                        size=row[length:].shape) * 1e3
        call()
        y = call.outputs["y"] if function == "predict" else call.outputs["loss"]
        if y.shape[1:2] == (6,):
            y = np.concatenate([row[:n] for row, n in zip(y, lengths, strict=True)])
        results.append([y.copy(), *program.get_weights()])
    for one, other in zip(*results, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)


LENGTHS = (3, 6, 1, 4, 5, 2, 6)


@pytest.mark.parametrize("kind", ["attention", "recurrent", "mean", "bidirectional"])
def test_ragged_rows_are_as_each_by_itself(kind: str) -> None:
    program = as_new(kind)
    pairs = [data(kind, 1, n) for n in LENGTHS]
    x = [x[0] for x, _ in pairs]
    y = [y[0] for _, y in pairs]
    targets = y if kind in STEPS else np.stack(y)
    single = [program.predict(row[None])[0] for row in x]
    predicted = program.predict(x)
    assert isinstance(predicted, list) == (kind in STEPS)
    for ours, alone in zip(predicted, single, strict=True):
        np.testing.assert_allclose(ours, alone, rtol=0, atol=1e-6)
    for ours, alone in zip(program.predict(iter([x[:2], x[2:]])), single, strict=True):
        np.testing.assert_allclose(ours, alone, rtol=0, atol=1e-6)
    scores = program.evaluate(x, targets, verbose=0)
    alone = np.mean([program.evaluate(row[None], target[None], verbose=0)
                     for row, target in zip(x, y, strict=True)], axis=0)
    assert scores == pytest.approx(alone, rel=1e-5)
    stream = [(x[:5], targets[:5]), (x[5:], targets[5:])]
    assert program.evaluate(stream, verbose=0) == pytest.approx(scores, rel=1e-5)


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
            sizes.append((int((call.inputs["w"] > 0).sum()), call.inputs["x"].shape[1]))
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
        exact = zt.Sequential([L.Input((4,)), L.BatchNormalization(momentum=0.5), L.Dense(3)],
                              seed=1).compile("cpu", batch_size=rows, loss="mse", optimizer="sgd")
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
    exact = build(3, 5).compile("cpu", batch_size=4, **options)
    exact.set_weights(program.get_weights())
    np.testing.assert_allclose(program.predict(x), exact.predict(x), rtol=0, atol=1e-6)
    assert program.train_on_batch(x, y) == pytest.approx(exact.train_on_batch(x, y), rel=1e-5)
    for ours, theirs in zip(program.get_weights(), exact.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)


def test_an_artifact_takes_the_same_sequences(tmp_path: Path) -> None:
    program = compiled("attention", batch_size=(1, 4))
    program.save(tmp_path / "words.zt")
    loaded = zt.load(tmp_path / "words.zt")
    assert loaded.metadata.axes == {"batch": (1, 4), "time": SIZES}
    x = [data("attention", 1, n)[0][0] for n in LENGTHS]
    for ours, theirs in zip(loaded.predict(x), program.predict(x), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_artifact_whose_axes_are_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.zt"
    as_new("mean").save(path)
    for other in ({"axes": {"batch": [3], "time": [3, 5]}}, {"open_axes": {"x": "tide"}}):
        path.write_bytes(changed(partial(_update, other), path.read_bytes()))
        with pytest.raises(ArtifactError, match="the name of an axis whose sizes its functions"):
            zt.load(path)


def _update(values: dict[str, Any], manifest: dict[str, Any]) -> None:
    manifest["program"].update(values)


def test_summaries_name_axes() -> None:
    lines: list[str] = []
    words = model("both ways")
    words.summary(lines.append)
    assert "(batch, time, 6)" in "\n".join(lines) and repr(words.output_shape) == "(time, 2)"
    assert any("FLOPs for one example of size 4 along time" in line for line in lines)
    as_new("both ways").summary(lines.append)
    assert any("batch 3; time 3 or 6" in line for line in lines)
    assert any("(3, 6, 6)" in line for line in lines)


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


def test_unnamed_axes_are_named_by_position() -> None:
    program = compiled("mean", None, sizes={"axis1": 8})
    assert program.metadata.axes == {"batch": (3,), "axis1": (8,)}
    with pytest.raises(DataError, match="axis 'axis1' of x has size 9"):
        program.predict(np.zeros((1, 9, 4)))
    again = zt.Sequential.from_json(model("mean", None).to_json())
    assert repr(again.input_shape) == "(None, 4)"


def test_generation_knows_the_largest_size() -> None:
    def program(size: Any, **options: Any) -> Program:
        return zt.Sequential([L.Input((size,), dtype="int32"), L.Embedding(11, 8),
                              L.PositionEmbedding(sequence_length=9), L.TransformerDecoder(8, 2),
                              L.Dense(11)], seed=6).compile("cpu", decode=True, batch_size=2,
                                                            **options)
    ours, exact = program("time", sizes=(4, 9)), program(9)
    assert (list(ours.generate([3, 1, 4], 20, seed=1)) == list(exact.generate([3, 1, 4], 20, seed=1)))


@pytest.mark.parametrize("name", one_in_each_run("vulkan", "opencl"))
def test_devices_hide_padding(name: str) -> None:
    place = device(name).id
    program, exact = compiled("attention", device=place), compiled("attention", device="cpu")
    x = [data("attention", 1, n)[0][0] for n in LENGTHS]
    for ours, theirs in zip(program.predict(x), exact.predict(x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
