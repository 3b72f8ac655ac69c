"""Programs for sequences of several sizes: results are those of the exact size."""

from __future__ import annotations

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
from tests.program.sequences import MODELS, SIZES, STEPS, as_new, compiled, data, exact, kept, model
from ztorch import layers as L
from ztorch.errors import ArtifactError, DataError
from ztorch.program.program import Program


@pytest.mark.parametrize("kind", MODELS)
def test_results_are_those_of_the_exact_size(kind: str) -> None:
    program, first = kept(kind)
    for size in share((1, 5), [*MODELS].index(kind), 2):
        alone = exact(kind, size)
        x, y = data(kind, 3, size)
        program.set_weights(first)
        alone.set_weights(first)
        np.testing.assert_allclose(program.predict(x), alone.predict(x), rtol=0, atol=1e-6)
        assert program.evaluate(x, y, verbose=0) == pytest.approx(
            alone.evaluate(x, y, verbose=0), rel=1e-5)
        for _ in range(2):
            assert program.train_on_batch(x, y) == pytest.approx(alone.train_on_batch(x, y),
                                                                 rel=1e-5)
        for ours, theirs in zip(program.get_weights(), alone.get_weights(), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", ["windows", "wide windows", "strided"])
def test_windows_are_those_of_every_exact_size(kind: str) -> None:
    """Where they begin depends on the size, and on its remainder where they are centered."""
    largest = model(kind).trace(1, sizes=13)
    x = np.random.default_rng(3).normal(size=(1, 13, 4)).astype(np.float32)
    for size in range(1, 14):
        [want] = evaluated(model(kind, size).trace(1), {"x": x[:, :size]})
        [got] = evaluated(largest, {"x": x, "lengths/time": np.array([size], np.int32)})
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6, err_msg=f"size {size}")


@pytest.mark.parametrize("function", ["predict", "train"])
@pytest.mark.parametrize("kind", MODELS)
def test_padding_does_not_influence_results(kind: str, function: str) -> None:
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


def test_an_artifact_accepts_the_same_sequences(tmp_path: Path) -> None:
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
    assert "(batch, time, 6)" in "\n".join(lines) and repr(words.output_shape) == "(None, time, 2)"
    assert any("FLOPs for one example of size 4 along time" in line for line in lines)
    as_new("both ways").summary(lines.append)
    assert any("batch 3; time 3 or 6" in line for line in lines)
    assert any("(3, 6, 6)" in line for line in lines)


def test_unnamed_axes_are_named_by_position() -> None:
    program = compiled("mean", None, sizes={"axis1": 8})
    assert program.metadata.axes == {"batch": (3,), "axis1": (8,)}
    with pytest.raises(DataError, match="axis 'axis1' of x has size 9"):
        program.predict(np.zeros((1, 9, 4)))
    again = zt.Sequential.from_json(model("mean", None).to_json())
    assert repr(again.input_shape) == "(None, None, 4)"


def test_generation_stops_at_the_largest_size() -> None:
    def program(size: Any, **options: Any) -> Program:
        return zt.Sequential([L.Input((size,), dtype="int32"), L.Embedding(11, 8),
                              L.PositionEmbedding(sequence_length=9), L.TransformerDecoder(8, 2),
                              L.Dense(11)], seed=6).compile("cpu", decode=True, batch_size=2,
                                                            **options)
    ours, alone = program("time", sizes=(4, 9)), program(9)
    assert (list(ours.generate([3, 1, 4], 20, seed=1)) == list(alone.generate([3, 1, 4], 20, seed=1)))


@pytest.mark.parametrize("name", one_in_each_run("vulkan", "opencl"))
def test_devices_hide_padding(name: str) -> None:
    place = device(name).id
    program, here = compiled("attention", device=place), as_new("attention")
    x = [data("attention", 1, n)[0][0] for n in LENGTHS]
    for ours, theirs in zip(program.predict(x), here.predict(x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
