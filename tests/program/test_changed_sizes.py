"""Outputs that are longer or shorter than the axis of their input: strides, borders, repetition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.artifacts import changed
from tests.cases.evaluating import evaluated
from tests.numpy_executable import compile_numpy
from ztorch import layers as L
from ztorch.errors import ArtifactError, DataError, ShapeError
from ztorch.runtime.buckets import parse_open_axes

SEQUENCES = {  # layers, and the size of their output
    "valid": (lambda: [L.Conv1D(3, 4)], "time - 3"),
    "strided": (lambda: [L.Conv1D(3, 3, strides=2, padding="same")], "(time + 1) // 2"),
    "causal": (lambda: [L.Conv1D(3, 3, strides=3, padding="causal")], "(time + 2) // 3"),
    "pooled": (lambda: [L.MaxPooling1D(3, strides=2), L.AveragePooling1D(2, padding="same")],
               "(time + 1) // 4"),
    "repeated": (lambda: [L.MaxPooling1D(2), L.UpSampling1D(3)], "time // 2 * 3"),
    "transposed": (lambda: [L.Conv1DTranspose(3, 3, strides=2, padding="same")], "time * 2"),
    "transposed whole": (lambda: [L.Conv1DTranspose(3, 4, strides=3, activation="tanh"),
                                  L.Conv1D(2, 3, padding="same")], "time * 3 + 1"),
    "bordered": (lambda: [L.ZeroPadding1D((2, 1)), L.Conv1D(2, 4)], "time"),
    "cropped": (lambda: [L.Conv1D(3, 3, padding="same"), L.Cropping1D((1, 2)),
                         L.Bidirectional(L.GRU(2, return_sequences=True))], "time - 3"),
    "within steps": (lambda: [L.Lambda(lambda x: zt.ops.reshape(x, (*x.shape[:2], 4, 1))),
                              L.TimeDistributed(L.Conv1D(2, 2)), L.Conv2D(2, (3, 1))], "time - 2"),
}


@pytest.mark.parametrize("kind", SEQUENCES)
def test_outputs_are_those_of_every_exact_size(kind: str) -> None:
    make, formula = SEQUENCES[kind]

    def model(size: Any) -> zt.Sequential:
        return zt.Sequential([L.Input((size, 4)), *make()], seed=2)

    largest = model("time").trace(1, sizes=13)
    axis = parse_open_axes(largest.metadata.open_axes["y"])[0]
    assert axis.formula == formula and str(model("time").output_shape[1]) == formula
    x = np.random.default_rng(3).normal(size=(1, 13, 4)).astype(np.float32)
    for size in range(1, 14):
        [got] = evaluated(largest, {"x": x, "lengths/time": np.array([size], np.int32)})
        try:
            exact = model(size).trace(1)
        except ShapeError:
            assert axis.size(size) == 0
            continue
        [want] = evaluated(exact, {"x": x[:, :size]})
        np.testing.assert_allclose(got[:, :axis.size(size)], want, rtol=0, atol=1e-6)


def need_same_training(make: Any, sizes: Any, rows: list[tuple[int, ...]], path: Path) -> None:
    """Rows of several sizes are predicted as by programs for each size, and train as there."""
    options: Any = {"optimizer": "sgd", "loss": "mse"}
    program = make(tuple(sizes)).compile("cpu:scalar", batch_size=2, sizes=sizes, **options)
    program.save(path / "model.zt")
    random = np.random.default_rng(0)
    x = [random.normal(size=(*row, 3)).astype(np.float32) for row in rows]
    first = program.get_weights()
    predicted = program.predict(x)
    for got, loaded in zip(predicted, zt.load(path / "model.zt").predict(x), strict=True):
        np.testing.assert_array_equal(got, loaded)
    for one, got in zip(x, predicted, strict=True):
        exact = compile_numpy(make(one.shape[:-1]), 1, **options)
        exact.set_weights(first)
        np.testing.assert_allclose(got, exact.predict(one[None])[0], rtol=0, atol=1e-6)
        program.set_weights(first)
        target = random.normal(size=got.shape).astype(np.float32)
        losses = [p.fit([one], [target] if p is program else target[None],
                        verbose=0).history["loss"] for p in (program, exact)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
        for ours, theirs in zip(program.get_weights(), exact.get_weights(), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)


def test_sequences_train_to_outputs_of_other_sizes(tmp_path: Path) -> None:
    def make(shape: tuple[Any, ...]) -> zt.Sequential:
        return zt.Sequential([L.Input((*shape, 3)), L.Conv1D(4, 3, strides=2), L.BatchNormalization(),
                              L.LSTM(3, return_sequences=True),
                              L.Conv1DTranspose(2, 4, strides=2)], seed=1)

    need_same_training(make, {"time": (6, 12)}, [(11,), (5,), (8,)], tmp_path)


def test_images_train_to_outputs_of_other_sizes(tmp_path: Path) -> None:
    def make(shape: tuple[Any, ...]) -> zt.Sequential:
        return zt.Sequential([
            L.Input((*shape, 3)), L.Conv2D(4, 3, strides=2, padding="same"), L.UpSampling2D(2),
            L.ZeroPadding2D(((1, 0), (2, 1))), L.Cropping2D(1), L.Conv2D(2, 2)], seed=1)

    need_same_training(make, {"height": (4, 8), "width": 6}, [(7, 5), (3, 6)], tmp_path)


def test_targets_have_the_size_of_the_output() -> None:
    model = zt.Sequential([L.Input(("time", 3)), L.MaxPooling1D(2), L.Dense(2)])
    program = model.compile("cpu:scalar", batch_size=2, sizes=8, optimizer="sgd", loss="mse")
    x = [np.ones((n, 3)) for n in (5, 7)]
    with pytest.raises(DataError, match="row 1 of y has 7 steps along axis 'time', and 3 in the "
                       "output"):
        program.fit(x, [np.ones((n, 2)) for n in (2, 7)], verbose=0)
    assert [y.shape for y in program.predict(x)] == [(2, 2), (3, 2)]
    assert program.predict(zt.tensor(np.ones((2, 5, 3), np.float32))).shape == (2, 2, 2)


def test_a_size_of_one() -> None:
    for layers, sizes, shape in (([L.Conv1D(2, 3, padding="same")], 1, (2, 1, 2)),
                                 ([L.ZeroPadding1D(2), L.Dense(2)], (1, 3), (2, 5, 2))):
        model = zt.Sequential([L.Input(("time", 3)), *layers])
        program = model.compile("cpu:scalar", batch_size=2, sizes=sizes)
        assert program.predict(np.ones((2, 1, 3))).shape == shape


def test_a_manifest_with_other_sizes_is_refused(tmp_path: Path) -> None:
    model = zt.Sequential([L.Input(("time", 3)), L.Conv1D(2, 3)])
    path = tmp_path / "model.zt"
    model.compile("cpu:scalar", batch_size=1, sizes=8).save(path)
    data = path.read_bytes()
    for text in ("time@1-3/1", "time@0-2/1", "time@", "@1-2/1", "tame@1-2/1"):
        path.write_bytes(changed(lambda m, text=text: m["program"]["open_axes"].update(y=text),
                                 data))
        with pytest.raises(ArtifactError, match="open_axes"):
            zt.load(path)
