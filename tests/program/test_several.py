"""Programs with several inputs and outputs: beside Keras, in files, and what is handed to them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import programs, references
from tests.cases.artifacts import changed
from tests.programs import same_states
from ztorch import layers as L
from ztorch.errors import (
    ArtifactError,
    ConfigError,
    DataError,
    NonFiniteLoss,
    UnknownName,
    Unsupported,
)
from ztorch.program.program import Program

random = np.random.default_rng(2)
ROWS = 20
IMAGE, META = (random.normal(size=(ROWS, n)).astype(np.float32) for n in (4, 3))
KIND = random.integers(0, 3, ROWS).astype(np.int32)
SIZE = random.normal(size=(ROWS, 1)).astype(np.float32)
X = {"image": IMAGE, "meta": META}
Y = {"kind": KIND, "size": SIZE}
HOW: dict[str, Any] = {
    "loss": {"kind": "sparse_categorical_crossentropy", "size": "mse"},
    "loss_weights": {"kind": 2.0, "size": 0.5},
    "metrics": {"kind": ["accuracy"], "size": ["mae"]}}


def declared(K: Any, names: bool = True) -> tuple[Any, Any]:
    image, meta = K.Input((4,), name="image"), K.Input((3,), name="meta")
    h = K.Concatenate()([K.Dense(6, activation="tanh")(image), meta])
    kind = K.Dense(3, activation="softmax", name="kind")(h)
    size = K.Dense(1, name="size")(h)
    if names:
        return {"image": image, "meta": meta}, {"kind": kind, "size": size}
    return [image, meta], [kind, size]


def compiled(names: bool = True, seed: int = 1, **how: Any) -> Program:
    model = zt.Model(*declared(L, names), name="two", seed=seed)
    return programs.compiled(model, 8, **{"optimizer": "adam", **HOW, **how})


@pytest.fixture(scope="module")
def program() -> Program:
    return compiled()


def native(**how: Any) -> Program:
    return zt.Model(*declared(L), seed=1).compile("cpu", batch_size=8, threads=1, **how)


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
        found = steps.fit(X, Y, verbose=0, validation_data=data, shuffle=False, epochs=1)
        assert set(found.history) >= {"val_loss", "val_kind_accuracy"}


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
    assert only.metrics_names == ["loss", "size_loss"]
    a = only.fit(X, SIZE, verbose=0, shuffle=False).history
    b = compiled(loss=[None, "mse"], metrics=[None, []], loss_weights=None).fit(
        X, {"size": SIZE}, verbose=0, shuffle=False).history
    assert a == b
    a, b = L.Input((4,), name="a"), L.Input((3,), name="b")
    apart = zt.Model([a, b], {"p": L.Dense(2)(a), "q": L.Dense(1)(b)}, seed=1)
    half = programs.compiled(apart, 8, optimizer="sgd", loss={"q": "mse"})
    alone = programs.compiled(zt.Model(b, L.Dense(1, name=apart.layers[1].name)(b), seed=1), 8,
                              optimizer="sgd", loss="mse")
    assert "x/a" not in half.executable.functions["train"].inputs
    assert half.fit([IMAGE, META], SIZE, verbose=0, epochs=2).history["loss"] == (
        alone.fit(META, SIZE, verbose=0, epochs=2).history["loss"])
    half.train_on_batch([IMAGE[:8], META[:8]], {"q": SIZE[:8]})
    one = zt.Model(*declared(L)).trace(4, loss="mse", metrics=["mae", ["mse"]])
    assert list(one.functions["evaluate"].outputs) == [
        "loss", "kind_loss", "size_loss", "kind_mae", "size_mse"]


def test_a_single_output_takes_a_loss_weight() -> None:
    model = zt.Sequential([L.Input((3,)), L.Dense(1)], seed=2)
    plain, half = (model.compile("cpu", batch_size=8, loss="mse", loss_weights=w, threads=1)
                   for w in (None, 0.5))
    assert half.evaluate(META, SIZE, verbose=0) == pytest.approx(
        plain.evaluate(META, SIZE, verbose=0) / 2)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("several") / "two.zt"
    native(optimizer="adam", **HOW).save(path)
    return path.read_bytes()


def test_artifacts_go_on_training(tmp_path: Path) -> None:
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
    program.save_checkpoint(tmp_path / "c")
    again.load_checkpoint(tmp_path / "c")
    assert same_states(program, again)
    native().save(tmp_path / "p.zt")
    assert list(zt.load(tmp_path / "p.zt").predict(X)) == ["kind", "size"]


@pytest.mark.parametrize(("change", "message"), [
    (lambda m: m["program"]["classes"].update(kind=0), "program.classes.kind is 0; it must be an integer"),
    (lambda m: m["program"]["loss"].update(kind={"name": 3}), "program.loss.kind.name is 3"),
    (lambda m: m["program"]["layers"][0].update(output_shape=[1, [2]]), r"output_shape\[0\] is 1; it "
                                                                        r"must be a list"),
    (lambda m: m["program"]["weights"][0].pop("name"), r"weights\[0\].name is missing"),
    *((lambda m, name=name: m["targets"][0]["spec"]["functions"][0]["inputs"][0].update(name=name),
       r"inputs is .*; it must be the inputs x") for name in ("x", "x/", "z/image", "")),
], ids=lambda x: "given" if callable(x) else str(x))
def test_manifests_that_are_wrong(artifact: bytes, tmp_path: Path, change: Any,
                                  message: str) -> None:
    (tmp_path / "two.zt").write_bytes(changed(change, artifact))
    with pytest.raises(ArtifactError, match=message):
        zt.load(tmp_path / "two.zt")


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
    given = [np.zeros((4, 3), np.float32), np.zeros((4, 1), np.float32)]
    library.two_predict(*(a.ctypes.data_as(ctypes.c_void_p) for a in (*arrays, *given)))
    expected = model.compile("cpu", batch_size=4, threads=1).predict(arrays)
    for a, b in zip(given, expected.values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_ids_are_checked_by_input() -> None:
    words, size = L.Input((5,), dtype="int32", name="words"), L.Input((2,), name="size")
    h = L.Flatten()(L.Embedding(10, 3)(words))
    program = zt.Model([words, size], L.Dense(1)(L.Concatenate()([h, size]))).compile(
        "cpu", batch_size=4, threads=1)
    ids = np.arange(20).reshape(4, 5) % 10
    assert program.predict([ids, np.ones((4, 2))]).shape == (4, 1)
    ids[2, 3] = 10
    with pytest.raises(DataError, match=r"x\['words'\] holds 10 in row 2; layer 'embedding' takes "
                                        r"integers from 0 to 9"):
        program.predict({"words": ids, "size": np.ones((4, 2))})


@pytest.mark.parametrize(("x", "message"), [
    (IMAGE, r"x is one ndarray; the model has 2 inputs \(image, meta\): pass a list"),
    ([IMAGE], "x has 1 parts; the model has 2 inputs"),
    ({"image": IMAGE}, "x lacks 'meta'"),
    ({**X, "mta": META}, r"unknown input 'mta'; did you mean 'meta'"),
    ([IMAGE, META[:-1]], r"x\['image'\] has 20 rows but x\['meta'\] has 19"),
    ([META, IMAGE], r"x\['image'\] has shape \(20, 3\), but the model takes \(N, 4\)"),
    ([IMAGE, None], r"x\['meta'\] is None"),
    ([], "x has 0 parts"),
    (iter([(IMAGE, META)]), r"x of batch 0 is one ndarray"),
])
def test_wrong_inputs(program: Program, x: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        program.predict(x)


@pytest.mark.parametrize(("y", "message"), [
    (None, "y is missing: .*an array for each output"),
    (KIND, r"y is one ndarray; the model has 2 outputs with a loss \(kind, size\)"),
    ({"kind": KIND}, "y lacks 'size'"),
    ([KIND, SIZE[:-1]], r"x has 20 rows but y\['size'\] has 19"),
    ([KIND + 1, SIZE], r"label 3 in row \d+ of y\['kind'\] is out of range.*0\.\.2"),
    ([KIND, SIZE * np.nan], r"y\['size'\] holds nan in row 0"),
])
def test_wrong_targets(program: Program, y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        program.fit(X, y, verbose=0)


def test_a_loss_that_is_not_finite_names_the_input() -> None:
    bad = np.where(np.arange(20)[:, None] == 3, np.nan, META)
    with pytest.raises(NonFiniteLoss, match=r"row 3 of this batch of x\['meta'\] is not finite"):
        compiled().fit([IMAGE, bad], Y, shuffle=False, verbose=0)


@pytest.mark.parametrize(("how", "kind", "message"), [
    ({"loss": ["mse"]}, ConfigError, r"loss lists 1 for 2 outputs \(kind, size\)"),
    ({"loss": {"kin": "mse"}}, ConfigError, r"unknown output 'kin'; did you mean 'kind'"),
    ({"loss": {"kind": "msee"}}, UnknownName, r"did you mean 'mse'"),
    ({"loss": {}}, ConfigError, r"loss=\{\} gives no output a loss; name one, such as loss=\{'kind': 'mse'\}"),
    ({"loss": {"kind": "mse"}}, ConfigError, r"output 'size' has metrics or a loss weight but no "
                                             r"loss"),
    ({"metrics": "accuracy"}, ConfigError, r"metrics='accuracy': a model with several outputs"),
    ({"loss_weights": {"kind": "a"}}, ConfigError, r"loss_weights must be a finite number, not 'a'"),
    ({"metrics": {"kind": [], "size": ["loss"]}}, UnknownName, r"unknown metric 'loss'"),
], ids=str)
def test_impossible_compiles(how: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        compiled(**how)
