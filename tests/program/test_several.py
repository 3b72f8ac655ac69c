"""Programs with several inputs and outputs: beside Keras, in files, and their arguments."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import programs, references
from tests.program.image_and_table import (
    HOW,
    IMAGE,
    KIND,
    META,
    ROWS,
    SIZE,
    X,
    Y,
    compiled,
    declared,
    native,
)
from tests.programs import same_states
from ztorch import layers as L
from ztorch.errors import (
    Unsupported,
)
from ztorch.program.program import Program


@pytest.fixture(scope="module")
def program() -> Program:
    return compiled()


def test_training_is_that_of_keras() -> None:
    keras = references.keras()
    theirs = keras.Model(*declared(keras.layers))
    ours = zt.Model(*declared(L), seed=1)
    theirs.set_weights(ours.get_weights())
    theirs.compile(keras.optimizers.SGD(0.1), **HOW)
    program = ours.compile("cpu", batch_size=8, optimizer=zt.optimizers.SGD(0.1), threads=1, **HOW)
    whole = {n: a[:16] for n, a in X.items()}, {n: a[:16] for n, a in Y.items()}
    got = program.fit(*whole, epochs=3, shuffle=False, verbose=0).history
    want = theirs.fit(*whole, epochs=3, shuffle=False, verbose=0, batch_size=8).history
    assert list(got) == ["loss", "kind_loss", "size_loss", "kind_accuracy", "size_mae"]
    assert set(got) == set(want)
    for name in got:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-4, atol=1e-6)
    for a, b in zip(program.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    scores = program.evaluate(X, Y, verbose=0, return_dict=True)
    for name, value in theirs.evaluate(X, Y, verbose=0, return_dict=True).items():
        assert scores[name] == pytest.approx(value, rel=1e-4)
    assert program.metrics_names == list(scores)


def test_arrays_come_as_lists_tuples_dicts_and_streams() -> None:
    by_name = compiled()
    history = by_name.fit(X, Y, epochs=2, shuffle=False, verbose=0).history
    pieces = [({n: a[s] for n, a in X.items()}, {n: a[s] for n, a in Y.items()})
              for s in (slice(0, 3), slice(3, 12), slice(12, 20))]
    ways: list[tuple[Any, ...]] = [
        ([IMAGE, META], [KIND, SIZE]), ((IMAGE, META), (KIND, SIZE[:, 0])),
        ({"meta": META.tolist(), "image": IMAGE}, {"size": SIZE, "kind": KIND}), (pieces,)]
    for way in ways:
        other = compiled(names=way is ways[0])
        assert other.fit(*way, epochs=2, shuffle=False, verbose=0).history == history
        assert same_states(by_name, other)
    # a batch at a time, and validation of each kind
    steps = compiled()
    for _ in range(2):
        for s in (slice(0, 8), slice(8, 16), slice(16, 20)):
            last: Any = steps.train_on_batch([IMAGE[s], META[s]], [KIND[s], SIZE[s]])
    assert same_states(by_name, steps) and len(last) == 5
    for data in ((X, Y), ([IMAGE, META], [KIND, SIZE]), ((IMAGE, META), (KIND, SIZE)), pieces):
        actual = steps.fit(X, Y, verbose=0, validation_data=data, shuffle=False, epochs=1)
        assert set(actual.history) >= {"val_loss", "val_kind_accuracy"}


def test_predictions_come_as_the_model_was_declared(program: Program) -> None:
    as_dict = program.predict(X)
    assert list(as_dict) == ["kind", "size"]
    other = compiled(names=False)
    other.set_weights(program.get_weights())
    as_list = other.predict([IMAGE, META])
    assert isinstance(as_list, list)
    few = program.predict({n: a[:5] for n, a in X.items()})
    streamed = program.predict(iter([[IMAGE[:11], META[:11]], [IMAGE[11:], META[11:]]]))
    again = program.predict(iter([{"image": IMAGE, "meta": META}]), verbose=0)
    on_batch = program.predict_on_batch({n: a[:5] for n, a in X.items()})
    for k, name in enumerate(as_dict):
        np.testing.assert_array_equal(as_dict[name], as_list[k])
        for same in (streamed, again):
            np.testing.assert_array_equal(as_dict[name], same[name])
        for same in (few, on_batch):
            np.testing.assert_array_equal(as_dict[name][:5], same[name])


def test_shuffling_keeps_rows_together() -> None:
    """A model that sees each row's number in both inputs and both targets."""
    a, b = L.Input((1,), name="a"), L.Input((1,), name="b")
    model = zt.Model([a, b], {"p": L.Subtract()([a, b]), "q": L.Dense(1)(a)})
    n = np.arange(50.0)
    program = model.compile("cpu", batch_size=8, loss={"p": "mse"}, optimizer="sgd", threads=1)
    history = program.fit([n, n], {"p": np.zeros(50)}, epochs=2, verbose=0, validation_split=0.2)
    assert history.history["loss"] == [0.0, 0.0] == history.history["val_loss"]


def test_splits_and_weights_of_rows() -> None:
    w = np.arange(ROWS) % 3
    program = compiled()
    whole = program.evaluate({n: np.repeat(a, w, 0) for n, a in X.items()},
                             {n: np.repeat(a, w, 0) for n, a in Y.items()}, verbose=0,
                             return_dict=True)
    weighed = program.evaluate(X, Y, sample_weight=w, verbose=0, return_dict=True)
    for name, loss in whole.items():  # of sums that are divided by the number of rows
        if name.endswith("loss"):
            assert weighed[name] * ROWS == pytest.approx(loss * w.sum(), rel=1e-5)
    split, apart = compiled(), compiled()
    history = split.fit(X, Y, validation_split=0.25, verbose=0).history
    first, last = slice(0, 15), slice(15, ROWS)
    assert apart.fit({n: a[first] for n, a in X.items()}, {n: a[first] for n, a in Y.items()},
                     validation_data=({n: a[last] for n, a in X.items()},
                                      {n: a[last] for n, a in Y.items()}),
                     verbose=0).history == history
    with pytest.raises(Unsupported, match="class_weight is for models with one output"):
        program.fit(X, Y, class_weight={0: 2.0}, verbose=0)
    with pytest.raises(Unsupported, match=r"same for all outputs; .* while its model is held in a variable"):
        program.fit(X, Y, sample_weight={"kind": w}, verbose=0)


def test_some_outputs_may_have_no_loss() -> None:
    only = compiled(loss={"size": "mse"}, metrics={}, loss_weights=None)
    assert only.metrics_names == ["loss"]  # as in Keras
    a = only.fit(X, SIZE, verbose=0, shuffle=False).history
    b = compiled(loss=[None, "mse"], metrics=[None, []], loss_weights=None).fit(
        X, {"size": SIZE}, verbose=0, shuffle=False).history
    assert a == b
    a, b = L.Input((4,), name="a"), L.Input((3,), name="b")
    apart = zt.Model([a, b], {"p": L.Dense(2)(a), "q": L.Dense(1, name="last")(b)}, seed=1)
    half = programs.compiled(apart, 8, optimizer="sgd", loss={"q": "mse"})
    alone = programs.compiled(zt.Model(b, L.Dense(1, name="last")(b), seed=1), 8,
                              optimizer="sgd", loss="mse")
    assert "x/a" not in half.executable.functions["train"].inputs
    assert half.fit([IMAGE, META], SIZE, verbose=0, epochs=2).history["loss"] == (
        alone.fit(META, SIZE, verbose=0, epochs=2).history["loss"])
    half.train_on_batch([IMAGE[:8], META[:8]], {"q": SIZE[:8]})
    one = zt.Model(*declared(L)).trace(4, loss="mse", metrics=["mae", ["mse"]])
    assert list(one.functions["evaluate"].outputs) == [
        "loss", "kind_loss", "size_loss", "kind_mae", "size_mse"]


def test_a_single_output_with_a_loss_weight() -> None:
    model = zt.Sequential([L.Input((3,)), L.Dense(1)], seed=2)
    plain, half = (model.compile("cpu", batch_size=8, loss="mse", loss_weights=w, threads=1)
                   for w in (None, 0.5))
    assert half.evaluate(META, SIZE, verbose=0) == pytest.approx(
        plain.evaluate(META, SIZE, verbose=0) / 2)


def test_artifacts_continue_training(tmp_path: Path) -> None:
    program = native(optimizer="adam", **HOW)
    program.fit(X, Y, epochs=2, verbose=0)
    program.save(tmp_path / "two.zt")
    again = zt.load(tmp_path / "two.zt", threads=1)
    for name, y in program.predict(X).items():
        np.testing.assert_array_equal(again.predict([IMAGE, META])[name], y)
    for one in (program, again):
        one.fit(X, Y, epochs=2, verbose=0)
    assert same_states(program, again) and list(again.weights) == list(program.weights)
    lines: list[str] = []
    again.summary(lines.append)
    assert any("concatenate (Concatenate)" in line for line in lines)
    program.save_checkpoint(tmp_path / "c.ckpt")
    again.load_checkpoint(tmp_path / "c.ckpt")
    assert same_states(program, again)
    native().save(tmp_path / "p.zt")
    assert list(zt.load(tmp_path / "p.zt").predict(X)) == ["kind", "size"]


def test_the_c_library_names_each(tmp_path: Path) -> None:
    from ztorch.compile.c_library import export_c

    model = zt.Model(*declared(L), name="two")
    export_c(model.trace(4, "sgd", **HOW), tmp_path)
    header = (tmp_path / "two.h").read_text()
    assert ("void two_predict(const float *x_image, const float *x_meta, float *y_kind, "
            "float *y_size);") in header
    for line in ("TWO_INPUT_IMAGE_SIZE 4UL", "TWO_INPUT_META_SIZE 3UL", "TWO_OUTPUT_KIND_SIZE 3UL",
                 "TWO_TARGET_KIND_SIZE 1UL", "TWO_TARGET_SIZE_SIZE 1UL"):
        assert f"#define {line} " in header
    library = ctypes.CDLL(str(tmp_path / "libtwo.so"))
    arrays = [np.ascontiguousarray(a[:4]) for a in (IMAGE, META)]
    batches = [np.zeros((4, 3), np.float32), np.zeros((4, 1), np.float32)]
    library.two_predict(*(a.ctypes.data_as(ctypes.c_void_p) for a in (*arrays, *batches)))
    expected = model.compile("cpu", batch_size=4, threads=1).predict(arrays)
    for a, b in zip(batches, expected.values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_layer_may_make_several_outputs_of_a_list() -> None:
    """The second and those after it have a number, which no other output is called by."""
    keras = references.keras()

    def made(layers: Any) -> Any:
        x = layers.Input((3, 2))
        y, h = layers.GRU(4, return_sequences=True, return_state=True, name="gru")(x)
        return x, [y, h, layers.Dense(2, name="gru_1")(h)]

    ours, theirs = zt.Model(*made(L), seed=1), keras.Model(*made(keras.layers))
    assert ours.output_names == ["gru", "gru_2", "gru_1"]
    theirs.set_weights(ours.get_weights())
    how: dict[str, Any] = {"loss": ["mse", "mae", "mse"], "loss_weights": [1.0, 0.5, 2.0]}
    program = ours.compile("cpu", batch_size=4, optimizer=zt.optimizers.SGD(0.1), **how)
    theirs.compile(keras.optimizers.SGD(0.1), **how)
    x = np.random.default_rng(0).normal(size=(4, 3, 2)).astype(np.float32)
    targets = [np.ones((4, *y.shape[1:])) for y in theirs.outputs]
    losses = [m.fit(x, targets, shuffle=False, verbose=0).history["loss"] for m in (program, theirs)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    for a, b in zip(program.predict(x), theirs.predict(x, verbose=0), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
