"""Pipelines: columns become features as records say, and outputs names; artifacts keep the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from ztorch.errors import ArtifactError, ConfigError, DataError
from ztorch.files.kinds import BadValue
from ztorch.tabular.record import PipelineRecord

TABLE = {
    "age": [20, None, 40, 30], "since": [1.7e9, 1.7e9 + 60, 1.7e9 + 120, 1.7e9 + 180],
    "kind": ["a", "b", "", "a"], "day": ["2024-01-01", "2024-07-01", "", "2024-01-08"],
    "note": ["good red wine", "good cheap wine", "a good glass", "bad red beer"], "y": ["no", "yes", "no", "yes"]}


def pipeline() -> zt.Pipeline:
    return zt.Pipeline(zt.data.table(TABLE, "y", text=["note"], number=["since"]))


def test_features_are_those_of_the_cells() -> None:
    learned = pipeline()
    x = dict(zip(learned.features, learned.inputs(TABLE).T, strict=True))
    assert x["age"].tolist() == [20, 30, 40, 30] and x["age is missing"].tolist() == [0, 1, 0, 0]
    assert np.diff(x["since"]).tolist() == [60, 60, 60]  # in float32 these numbers would differ by 128
    assert x["kind = a"].tolist() == [1, 0, 0, 1] and x["kind is missing"].tolist() == [0, 0, 1, 0]
    assert x["note has good"].tolist() == [1, 1, 1, 0] and "note has bad" not in x
    np.testing.assert_allclose(x["note, words"], np.log1p([3, 3, 3, 3]), rtol=1e-6)
    assert x["day, days"].tolist() == [8766, 8948, 8773, 8773]  # the gap is the median
    np.testing.assert_allclose(x["day, month, cosine"], [1, -1, 1, 1], atol=1e-6)
    np.testing.assert_allclose(x["day, weekday, cosine"][[0, 1]], 1)  # both Mondays
    assert learned.targets(TABLE).tolist() == [0, 1, 0, 1] and learned.classes == ("no", "yes")


def test_numbers_far_below_zero_and_minutes_count() -> None:
    table = {"depth": [-1.7e9, -1.7e9 + 60, -1.7e9 + 120], "y": [0, 1, 0],
             "at": ["2024-01-01 06:00", "2024-01-02 18:30", "2024-01-03 00:45"]}
    learned = zt.Pipeline(zt.data.table(table, "y", number=["depth"]))
    x = dict(zip(learned.features, learned.inputs(table).T, strict=True))
    assert np.diff(x["depth"]).tolist() == [60, 60]  # in float32 these numbers would differ by 128
    hours = np.array([6, 18.5, 0.75]) * (2 * np.pi / 24)
    np.testing.assert_allclose(x["at, hour, sine"], np.sin(hours), atol=1e-6)
    np.testing.assert_allclose(x["at, hour, cosine"], np.cos(hours), atol=1e-6)


def test_columns_in_any_order_and_new_categories() -> None:
    learned = pipeline()
    x = learned.inputs(TABLE)
    turned = {name: TABLE[name] for name in reversed(TABLE) if name != "y"}
    assert np.array_equal(learned.inputs(turned), x) and not learned.unseen
    new = learned.inputs({**TABLE, "kind": ["zebra", "a", "zebra", ""]})
    columns = [learned.features.index(f"kind = {k}") for k in "ab"]
    assert new[:, columns].tolist() == [[0, 0], [1, 0], [0, 0], [0, 0]]
    assert learned.unseen["kind"] == {"zebra": 2}


def test_rare_categories_share_a_feature() -> None:
    cells = ["often"] * 60 + [f"rare {k}" for k in range(25)]
    learned = zt.Pipeline(zt.data.table({"k": cells, "n": range(85)}, category=["k"], ignore=["n"]))
    assert learned.features == ("k = often", "k, other")
    assert learned.inputs({"k": ["often", "never seen"]}).tolist() == [[1, 0], [0, 1]] and not learned.unseen


def test_a_record_says_it_all() -> None:
    learned = pipeline()
    again = zt.Pipeline.from_config(json.loads(json.dumps(learned.get_config())))
    assert again.record == learned.record and np.array_equal(again.inputs(TABLE), learned.inputs(TABLE))


def test_quantities_keep_their_units() -> None:
    learned = zt.Pipeline(zt.data.table({"x": [1, 2, 4] * 10, "weight (kg)": np.linspace(0, 1, 30)}, "weight (kg)"))
    predictions = learned.predictions(np.array([[1.5], [2.25]], np.float32))
    assert predictions.best(1) == "2.25 kg" and predictions[0] == 1.5 and list(predictions) == [1.5, 2.25]
    assert predictions.to_csv() == "weight (kg)\n1.5\n2.25\n"


def test_a_single_output_is_the_probability_of_the_second_class() -> None:
    predictions = pipeline().predictions(np.array([[0.25], [0.75]], np.float32))
    assert predictions.names == ["no", "yes"] and predictions[1] == {"no": 0.25, "yes": 0.75}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a column is missing": ({k: v for k, v in TABLE.items() if k != "day"} | {"dya": ["2024-01-01"] * 4},
                            "no column 'day'; did you mean 'dya'"),
    "a text among numbers": (TABLE | {"age": ["20", "old", "", "30"]}, "row 1, column 'age': 'old' is not a number"),
    "another form of dates": (TABLE | {"day": ["1.2.2024"] * 4}, "row 0, column 'day': '1.2.2024'.*2024-12-31"),
    "no rows": ({k: [] for k in TABLE}, "the table has no rows"),
    "more than float32": (TABLE | {"age": [1e300, 1, 1, 1]}, "more than float32 holds"),
}


@together()
@pytest.mark.parametrize("name", WRONG)
def test_wrong_tables_are_explained(name: str) -> None:
    table, message = WRONG[name]
    with pytest.raises(DataError, match=message):
        pipeline().inputs(table)


def test_a_table_with_nothing_to_learn_from() -> None:
    with pytest.raises(DataError, match="no column to learn from: 'k' numbers the rows; declare one's kind"):
        zt.Pipeline(zt.data.table({"k": range(30), "y": ["a", "b"] * 15}, "y"))


def test_wrong_targets_are_explained() -> None:
    with pytest.raises(DataError, match="row 1: the target 'y' is 'yess', unknown class 'yess'; did you mean 'yes'"):
        pipeline().targets(TABLE | {"y": ["no", "yess", "no", "no"]})
    with pytest.raises(DataError, match="row 0: the target 'y' is empty"):
        pipeline().targets(TABLE | {"y": ["", "yes", "no", "no"]})


HARM: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "code"}, r"columns\[0\].kind is 'code'"),
    "words": ({"kind": "category", "words": ["a", "a"]}, "different texts"),
    "too many words": ({"kind": "category", "words": [str(k) for k in range(20_001)]}, "at most 20000"),
    "long words": ({"kind": "category", "words": ["a" * 1001]}, r"words\[0\]"),
    "infinite": ({"kind": "number", "fill": float("inf")}, "finite"),
    "format": ({"kind": "date", "format": "%Y %s"}, "format of dates"),
    "no format": ({"kind": "date"}, "the format of the dates"),
}


@together()
@pytest.mark.parametrize("name", HARM)
def test_records_from_files_are_checked(name: str) -> None:
    column, message = HARM[name]
    with pytest.raises(BadValue, match=message):
        PipelineRecord.from_json({"version": 1, "source": "table", "columns": [{"name": "a", **column}]})


def test_programs_take_tables_with_texts() -> None:
    learned = pipeline()
    x, y = learned.arrays(TABLE)
    names = ["predictions", "scores", "trained"]
    result: list[list[Any]] = []
    for table, targets in ((x, y), (TABLE, None), (TABLE, TABLE["y"])):
        model = zt.Sequential([zt.layers.Input((x.shape[1],)), zt.layers.Dense(2, activation="softmax")], seed=3)
        model.pipeline = learned
        program = model.compile("cpu:scalar", batch_size=4, optimizer="sgd", loss="sparse_categorical_crossentropy")
        result.append([program.predict(table), program.evaluate(table, targets, verbose=0)])
        program.fit(table, targets, epochs=2, verbose=0, validation_data=(table, targets))
        program.train_on_batch(table, targets)
        result[-1].append(program.predict_on_batch(table))
    for other in result[1:]:
        for name, a, b in zip(names, result[0], other, strict=True):
            np.testing.assert_array_equal(a, b, name)
    frames = pytest.importorskip("pandas").DataFrame
    np.testing.assert_array_equal(program.predict(frames(TABLE)), program.predict(x))
    np.testing.assert_array_equal(program.predict(frames(x, columns=learned.features)), program.predict(x))
    with pytest.raises(DataError, match="has no column 'since'"):
        program.predict(frames({"age": [1]}))
    with pytest.raises(DataError, match="the target 'y' is 'perhaps'"):
        program.fit(TABLE, ["no", "yes", "perhaps", "no"])


def test_artifacts_store_it(tmp_path: Path) -> None:
    learned = pipeline()
    width = len(learned.features)
    model = zt.Sequential([zt.layers.Input((width,)), zt.layers.Dense(2, activation="softmax")])
    program = model.compile("cpu:scalar", batch_size=4)
    with pytest.raises(ConfigError, match="has no description of its inputs"):
        program.predict_table(TABLE)
    program.pipeline = learned
    program.save(tmp_path / "t.zt")
    loaded = zt.load(tmp_path / "t.zt")
    assert loaded.pipeline is not None and loaded.pipeline.record == learned.record
    predictions = loaded.predict_table(TABLE)
    assert np.array_equal(predictions.probabilities, program.predict(learned.inputs(TABLE)))
    assert predictions.names == [learned.classes[k] for k in predictions.probabilities.argmax(1)]
    with pytest.raises(ConfigError, match="does not fit program"):
        program.pipeline = zt.Pipeline(zt.data.table({"a": [1, 2], "b": ["x", "y"]}, "b"))
    # a manifest that contradicts itself is refused before anything runs
    record = learned.record.replace(columns=learned.record.columns[1:])
    loaded.metadata = loaded.metadata.replace(pipeline=record)
    loaded.save(tmp_path / "wrong.zt")
    with pytest.raises(ArtifactError, match=r"program\.pipeline\.columns is \d+; it must be as many features"):
        zt.load(tmp_path / "wrong.zt")


@pytest.mark.cheap
@pytest.mark.parametrize(("source", "shape", "fits"), [
    ("images", (8, 8, 3), True), ("images", (64,), False), ("sounds", (800,), True), ("sounds", (800, 2), True),
    ("sounds", (8, 8, 3), False), ("arrays", (8, 8, 3, 2), True), ("table", (1,), False)])
def test_records_fit_models_of_their_source(source: str, shape: tuple[int, ...], fits: bool) -> None:
    record = PipelineRecord(1, source)
    if fits:
        record.check_shapes({"": shape}, {"": (1,)})
    else:
        with pytest.raises(BadValue):
            record.check_shapes({"": shape}, {"": (1,)})
