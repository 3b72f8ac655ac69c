"""FeatureSpace against NumPy: Keras' own needs tensorflow."""

import json

import numpy as np
import pytest

import ztorch as zt
from ztorch.data.batches import Mapped
from ztorch.errors import ConfigError, DataError, Unsupported

FS = zt.utils.FeatureSpace
ROWS = {"age": [20.0, 40.0, 60.0, 30.0], "size": [1.0, 2.0, 3.0, 4.0], "kind": ["b", "a", "b", "c"],
        "code": [7, 7, 3, 9], "raw": [1.5, -2.0, 0.0, 4.0], "user": ["u", "v", "u", "w"],
        "target": [0, 1, 0, 1]}
AGES = np.array(ROWS["age"])
PARTS = {  # feature, expected columns; the most frequent category first, the later of equals next
    "age": (FS.float_normalized(), ((AGES - AGES.mean()) / AGES.std())[:, None]),
    "size": (FS.float_discretized(2), np.eye(2)[[0, 0, 1, 1]]),
    "kind": (FS.string_categorical(), np.eye(4)[[1, 3, 1, 2]]),
    "code": (FS.integer_categorical(max_tokens=3), np.eye(3)[[1, 1, 0, 2]]),
    "raw": (FS.float_rescaled(2.0, 1.0), np.array([[4.0], [-3.0], [1.0], [9.0]])),
}


def space(**more):
    made = FS({name: feature for name, (feature, _) in PARTS.items()}, **more)
    made.adapt(ROWS)
    return made


def test_values_by_feature_joined_and_of_a_single_row():
    for name, made in space(output_mode="dict")(ROWS).items():
        np.testing.assert_allclose(made, PARTS[name][1], atol=1e-6)
    want = np.concatenate([PARTS[name][1] for name in sorted(PARTS)], 1)
    joined = space()
    np.testing.assert_allclose(joined(ROWS), want, atol=1e-6)
    np.testing.assert_allclose(joined({name: x[2] for name, x in ROWS.items()}), want[2], atol=1e-6)
    unseen = joined({**ROWS, "kind": ["?", "a", "b", "c"]})[:, 4:8]  # after age 1 and code 3
    assert unseen[0].tolist() == [1, 0, 0, 0]
    again = FS.from_config(json.loads(json.dumps(joined.get_config())))
    np.testing.assert_allclose(again(ROWS), want, atol=1e-6)


def test_batches_and_frames_teach_the_same_as_a_dict():
    pandas = pytest.importorskip("pandas")
    batches = [({name: x[k:k + 2] for name, x in ROWS.items()}, [0, 1]) for k in (0, 2)]
    other = FS({name: feature.from_config(feature.get_config())
                for name, (feature, _) in PARTS.items()})
    other.adapt(iter(batches))
    np.testing.assert_array_equal(other(pandas.DataFrame(ROWS)), space()(ROWS))


def test_hashes_and_crosses_distinguish_categories():
    made = FS({"kind": "string_categorical", "code": "integer_hashed", "user": "string_hashed"},
              output_mode="dict", crosses=[("kind", "code")], crossing_dim=64, hashing_dim=16)
    made.adapt(ROWS)
    out = made({**ROWS, "kind": ["b", "b", "a", "b"], "code": [7, 7, 7, 3]})
    crossed = out["kind_X_code"]
    assert crossed.shape == (4, 64) and out["user"].shape == out["code"].shape == (4, 16)
    assert all((x.sum(1) == 1).all() for x in out.values())
    numbers = crossed.argmax(1)
    assert numbers[0] == numbers[1] and len({*numbers.tolist()}) == 3
    again = FS.from_config(json.loads(json.dumps(made.get_config())))
    np.testing.assert_array_equal(again(ROWS)["kind_X_code"], made(ROWS)["kind_X_code"])
    with pytest.raises(Unsupported, match=r"kind_X_code.*zt.Pipeline"):
        made.get_encoded_features()
    with pytest.raises(Unsupported, match=r"'n'.*hash of integers"):
        FS({"n": FS.integer_hashed(4)}).get_encoded_features()


def test_a_model_accepts_raw_columns():
    made = space()
    model = zt.Model(made.get_inputs(), made.get_encoded_features())
    got = model.predict({name: np.array(ROWS[name])[:, None] for name in PARTS}, verbose=0)
    np.testing.assert_allclose(got, made(ROWS), atol=1e-5)


def test_batches_of_a_data_set_are_preprocessed_in_fit():
    made = space()
    columns = [({name: x[k:k + 2] for name, x in ROWS.items()}, np.eye(2)[k // 2:][:1].repeat(2, 0))
               for k in (0, 2)]
    batches = Mapped(columns, lambda x, y: (made(x), y))
    np.testing.assert_array_equal(np.concatenate([x for x, _ in batches]), made(ROWS))
    model = zt.Sequential([zt.layers.Input((made(ROWS).shape[1],)),
                           zt.layers.Dense(2, activation="softmax")])
    model.compile(optimizer="sgd", loss="categorical_crossentropy")
    assert len(model.fit(batches, epochs=2, verbose=0).history["loss"]) == 2


@pytest.mark.parametrize("run, error, match", [
    (lambda: FS({}), ConfigError, "a dict from columns to features"),
    (lambda: FS({"a": "floats"}), ConfigError, "feature 'a': 'floats' is none; use one of"),
    (lambda: FS({"a": FS.string_hashed(3, output_mode="int")}), ConfigError, "feature 'a' has output_mode='int'"),
    (lambda: FS({"a": "float", "b": "float"}, crosses=[("a", "b")]), ConfigError, "a_X_b: 'a' is not a category"),
    (lambda: FS({"kind": "string_categorical"})(ROWS), ConfigError, "feature 'kind' is not adapted"),
    (lambda: FS({"b": "float"})(ROWS), DataError, "feature 'b': no such column"),
    (lambda: FS({"kind": "float"})(ROWS), DataError, "feature 'kind': could not convert"),
    (lambda: FS({"raw": "integer_hashed"})(ROWS), DataError, "feature 'raw' takes integers"),
    (lambda: FS({"raw": "float_normalized"}).adapt({"raw": [np.nan]}), DataError, r"feature 'raw'.*not finite"),
    (lambda: FS({"raw": "float"})([1.0]), DataError, "a dict of columns or a data frame"),
    (lambda: FS({"a": "float", "b": "float"})({"a": [1], "b": [1, 2]}), DataError, "have different numbers of rows"),
])
def test_errors_name_the_feature(run, error, match):
    with pytest.raises(error, match=match):
        run()
