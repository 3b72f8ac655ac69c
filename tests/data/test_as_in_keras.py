"""Helpers with the names and the values of `keras.utils`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ztorch as zt
from tests import references
from ztorch import utils
from ztorch.errors import ConfigError, DataError, Unsupported

RANDOM = np.random.default_rng(0)
TEXTS = [[1, 2, 3], [4], [], [5, 6, 7, 8]]


def same(a: Any, b: Any) -> None:
    np.testing.assert_array_equal(a, b)
    assert np.asarray(a).dtype == np.asarray(b).dtype


def test_values_are_those_of_keras() -> None:
    theirs = references.keras().utils
    for x, how in (([0, 2, 1], {}), ([[0], [3]], {"num_classes": 5}), ([[0, 1], [2, 0]], {})):
        same(utils.to_categorical(x, **how), theirs.to_categorical(x, **how))
    x = RANDOM.normal(size=(3, 4))
    x[1] = 0
    for how in ({}, {"axis": 1}, {"order": 1}):
        np.testing.assert_allclose(utils.normalize(x, **how), theirs.normalize(x, **how))
    for how in ({}, {"maxlen": 2}, {"maxlen": 2, "truncating": "post"}, {"padding": "post"},
                {"maxlen": 6, "value": -1, "dtype": "float32"}):
        same(utils.pad_sequences(TEXTS, **how), theirs.pad_sequences(TEXTS, **how))
    same(utils.pad_sequences([[[1, 2]], [[3, 4], [5, 6]]]),
         theirs.pad_sequences([[[1, 2]], [[3, 4], [5, 6]]]))


def test_wrong_arguments() -> None:
    for message, call in (
            ("got class 3, but num_classes=2", lambda: utils.to_categorical([0, 3], 2)),
            ("takes class numbers", lambda: utils.to_categorical([0.5])),
            ("takes class numbers", lambda: utils.to_categorical([-1])),
            ("sequence 1 is 4, not a list", lambda: utils.pad_sequences([[1], 4])),
            ("must be 'pre' or 'post'", lambda: utils.pad_sequences([[1]], padding="left")),
            ("steps of sequence 1 have shape", lambda: utils.pad_sequences([[1], [[1]]])),
            ("hold no window of 9 steps", lambda: utils.timeseries_dataset_from_array(
                range(5), None, 9)),
            ("needs left_size or right_size", lambda: utils.split_dataset(np.ones(3))),
            ("make an array of a list of numbers", lambda: utils.split_dataset([1, 2, 3], left_size=2)),
            ("cannot split 5 rows into parts of 4 and 2", lambda: utils.split_dataset(
                np.ones(5), left_size=4, right_size=2)),
            ("cannot split 5 rows into parts of 5 and 0", lambda: utils.split_dataset(
                np.ones(5), left_size=5)),
            ("arrays with the same number of rows, not 3, 2", lambda: utils.split_dataset(
                (np.ones(3), np.ones(2)), left_size=1))):
        with pytest.raises((ConfigError, DataError), match=message):
            call()


def test_windows_of_a_series() -> None:
    data, targets = np.arange(20.0), np.arange(20) * 10
    windows = utils.timeseries_dataset_from_array(
        data, targets, sequence_length=3, sequence_stride=2, sampling_rate=3, batch_size=4,
        start_index=2, end_index=18)
    x, y = windows.arrays()
    same(y, np.array([20, 40, 60, 80, 100]))
    same(x, y[:, None] / 10.0 + np.array([0.0, 3.0, 6.0]))
    assert [len(batch[1]) for batch in windows] == [4, 1]
    alone = utils.timeseries_dataset_from_array(data, None, 2, batch_size=50)
    assert next(iter(alone)).shape == (19, 2)
    mixed = utils.timeseries_dataset_from_array(data, targets, 2, shuffle=True, seed=3)
    first, second = (next(iter(mixed))[1].tolist() for _ in range(2))
    assert first != second and sorted(first) == sorted(second) == (targets[:19]).tolist()
    model = zt.Sequential([zt.layers.Input((2,)), zt.layers.Dense(1)])
    model.compile("cpu:scalar", batch_size=8, optimizer="adam", loss="mse")
    assert len(model.fit(mixed, epochs=2, verbose=0).history["loss"]) == 2


def test_parts_of_data() -> None:
    x, y = np.arange(10), np.arange(10) * 2
    (a, _b), (c, d) = utils.split_dataset((x, y), right_size=0.3)
    same(np.concatenate([a, c]), x)
    same(d, y[7:])
    left, right = utils.split_dataset(x, left_size=4, right_size=2, shuffle=True, seed=1)
    assert len(left) == 4 and len(right) == 2 and len({*left, *right}) == 6
    windows = utils.timeseries_dataset_from_array(x, y, 1)
    train, test = utils.split_dataset(windows, left_size=8)
    assert (train.rows, test.rows) == (8, 2)


def test_folders_of_images(tmp_path: Path) -> None:
    for k, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        for n in range(3):
            Image.new("RGB", (4, 4), (10 * n, 100 * k, 7)).save(tmp_path / name / f"{n}.png")
    load = utils.image_dataset_from_directory
    images = load(tmp_path, image_size=(2, 2), shuffle=False)
    x, y = images.arrays()
    assert images.class_names == ["cat", "dog"] and x.shape == (6, 2, 2, 3)
    same(x[:, 0, 0], np.array([(10 * n, 100 * k, 7) for k in range(2) for n in range(3)], "f"))
    same(y, np.array([0, 0, 0, 1, 1, 1], np.int32))
    assert [Path(p).name for p in images.file_paths[:2]] == ["0.png", "1.png"]
    x, y = load(tmp_path, label_mode="categorical", color_mode="grayscale", image_size=(2, 2),
                data_format="channels_first").arrays()
    assert x.shape == (6, 1, 2, 2) and y.sum(0).tolist() == [3.0, 3.0]
    train, validation = load(tmp_path, label_mode="binary", image_size=(2, 2),
                             validation_split=0.34, subset="both")
    assert (train.rows, validation.rows) == (4, 2) and train.arrays()[1].shape == (4, 1)
    assert next(iter(load(tmp_path, label_mode=None, image_size=(2, 2)))).shape == (6, 2, 2, 3)
    for message, how in (("go together", {"subset": "training"}), ("color_mode='x'", {
            "color_mode": "x"}), ("label_mode='x'", {"label_mode": "x"})):
        with pytest.raises(ConfigError, match=message):
            load(tmp_path, **how)


def test_images_are_cropped_and_padded_as_in_keras(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 12, 3), np.uint8)
    (tmp_path / "a").mkdir()
    for k, image in enumerate((pixels, pixels.transpose(1, 0, 2))):
        Image.fromarray(image).save(tmp_path / "a" / f"{k}.png")
    load = utils.image_dataset_from_directory
    for size in ((4, 4), (3, 5), (5, 2)):
        how = {"image_size": size, "interpolation": "nearest", "shuffle": False}
        x = load(tmp_path, labels=None, crop_to_aspect_ratio=True, **how).arrays()
        for k in range(2):
            same(x[k], np.asarray(references.keras().utils.load_img(
                tmp_path / "a" / f"{k}.png", target_size=size, interpolation="nearest", keep_aspect_ratio=True),
                np.float32))
    x = load(tmp_path, labels=None, pad_to_aspect_ratio=True, image_size=(12, 12), interpolation="nearest",
             shuffle=False).arrays()
    want = np.zeros((2, 12, 12, 3), np.float32)
    want[0, 2:9], want[1, :, 2:9] = pixels, pixels.transpose(1, 0, 2)
    same(x, want)


def test_labels_and_classes_of_files_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for k, name in enumerate(("cat", "dog", "emu")):
        (tmp_path / name).mkdir()
        Image.new("L", (2, 2), 10 * k).save(tmp_path / name / "1.png")
    load, how = utils.image_dataset_from_directory, {"image_size": (2, 2), "shuffle": False, "color_mode": "grayscale"}
    chosen = load(tmp_path, class_names=["emu", "cat"], verbose=True, **how)
    x, y = chosen.arrays()
    assert (x[:, 0, 0, 0].tolist(), y.tolist(), chosen.class_names) == ([20, 0], [0, 1], ["emu", "cat"])
    assert capsys.readouterr().out == "Found 2 files of 2 classes.\n"
    assert load(tmp_path, [2, 0, 2], "int", **how).arrays()[1].tolist() == [2, 0, 2]
    assert load(tmp_path, labels=None, **how).arrays().shape == (3, 2, 2, 1)
    for error, message, wrong in (
            (ConfigError, "one class number for each of the 3 files", {"labels": [1, 2]}), (ConfigError, "'inferred'", {"labels": "x"}),
            (ConfigError, "class_names belongs", {"labels": None, "class_names": ["cat"]}),
            (DataError, "no folder 'fox' of class_names", {"class_names": ["fox"]}),
            (ConfigError, "interpolation='x' must be", {"interpolation": "x"}),
            (ConfigError, "cannot both", {"crop_to_aspect_ratio": True, "pad_to_aspect_ratio": True})):
        with pytest.raises(error, match=message):
            load(tmp_path, **{**how, **wrong})


def test_folders_of_texts(tmp_path: Path) -> None:
    for name, text in (("bad", "Oh no"), ("good", "\ufeffWell done")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").write_text(text, "utf-8")
    texts = utils.text_dataset_from_directory(tmp_path, shuffle=False, max_length=4)
    x, y = texts.arrays()
    assert (x.tolist(), y.tolist(), texts.class_names) == (["Oh n", "Well"], [0, 1],
                                                           ["bad", "good"])
    (tmp_path / "bad" / "1.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot be read as text in UTF-8"):
        texts.arrays()
    with pytest.raises(DataError, match="should hold a folder of"):
        utils.text_dataset_from_directory(tmp_path / "good")


def test_models_are_drawn(tmp_path: Path) -> None:
    L = zt.layers
    x = L.Input((4,), name="numbers")
    a = L.Dense(3, name="left")(x)
    model = zt.Model(x, L.Add(name="sum")([a, L.Dense(3, name="right")(x)]))
    figure = utils.plot_model(model, tmp_path / "m.svg", show_shapes=True)
    drawn = [t.get_text() for t in figure.axes[0].texts]
    assert {"numbers (Input)\n(4,)", "left (Dense)\n(3,)", "right (Dense)\n(3,)",
            "sum (Add)\n(3,)"} <= {*drawn}
    assert drawn.count("") == 4  # arrows
    assert (tmp_path / "m.svg").read_bytes()[:5] == b"<?xml"
    row = zt.Sequential([L.Input((4,)), L.Dense(2)])
    assert [t.get_text() for t in utils.plot_model(row, None, show_layer_names=False).axes[
        0].texts][:2] == ["Input", "Dense"]


def test_single_images_are_those_of_keras(tmp_path: Path) -> None:
    theirs = references.keras().utils
    x = RANDOM.random((9, 12, 3)) * 200
    utils.save_img(tmp_path / "a.png", x)
    utils.save_img(tmp_path / "gray.png", x[..., :1].transpose(2, 0, 1), data_format="channels_first", scale=False)
    theirs.save_img(tmp_path / "b.png", x)
    same(np.asarray(Image.open(tmp_path / "a.png")), np.asarray(Image.open(tmp_path / "b.png")))
    for how in ({}, {"color_mode": "grayscale"}, {"color_mode": "rgba", "target_size": (4, 5)},
                {"target_size": (6, 6), "interpolation": "bilinear", "keep_aspect_ratio": True}):
        ours, other = (room.load_img(tmp_path / "a.png", **how) for room in (utils, theirs))
        same(utils.img_to_array(ours), theirs.img_to_array(other))
        same(utils.img_to_array(ours, "channels_first", "uint8"), theirs.img_to_array(other, "channels_first", "uint8"))
    same(np.asarray(utils.array_to_img(x)), np.asarray(theirs.array_to_img(x)))
    same(utils.img_to_array(utils.load_img(tmp_path / "gray.png", "grayscale"))[..., 0], x[..., 0].astype(np.uint8).astype("f"))
    with pytest.warns(UserWarning, match="no transparency"):
        utils.save_img(tmp_path / "c.jpg", np.ones((4, 4, 4)))
    (tmp_path / "bad.png").write_bytes(b"no image")
    for wrong, error, message in (
            (lambda: utils.load_img(tmp_path / "none.png"), DataError, "there is no file"),
            (lambda: utils.load_img(tmp_path / "bad.png"), DataError, r"bad.png cannot be read as an image"),
            (lambda: utils.load_img(tmp_path / "a.png", "cmyk"), ConfigError, "color_mode='cmyk'"),
            (lambda: utils.save_img(tmp_path / "a.xyz", x), ConfigError, "must end in one of"),
            (lambda: utils.array_to_img(x[0]), DataError, "channels, not"),
            (lambda: utils.img_to_array(x[0, 0]), DataError, "takes an image")):
        with pytest.raises(error, match=message):
            wrong()


def test_models_as_dot(tmp_path: Path) -> None:
    x = zt.layers.Input((4,), name="x")
    a, b = zt.layers.Dense(3, name="a")(x), zt.layers.Dense(3, name="b")(x)
    dot = utils.model_to_dot(zt.Model(x, zt.layers.Add(name="sum")([a, b])), show_shapes=True)
    assert dot.write(tmp_path / "m.dot")
    lines = [line.strip() for line in (tmp_path / "m.dot").read_text().splitlines()]
    assert lines[3:] == ['0 [label="x (Input)|(4,)"];', '1 [label="a (Dense)|(3,)"];',
                         '2 [label="b (Dense)|(3,)"];', '3 [label="sum (Add)|(3,)"];', "0 -> 1;",
                         "0 -> 2;", "1 -> 3;", "2 -> 3;", "}"]
    with pytest.raises(Unsupported, match="Graphviz makes 'png' of it"):
        dot.write(tmp_path / "m.png", format="png")


def test_dot_text_has_names_escaped() -> None:
    quoted = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(3, name='a"]; b [c="')])
    assert r'label="a\"]; b [c=\"' in utils.model_to_dot(quoted).to_string()
    with pytest.raises(ConfigError, match="rankdir"):
        utils.model_to_dot(quoted, rankdir="TB; x")


def test_only_transparency_is_dropped_with_a_warning(tmp_path: Path) -> None:
    pixels = np.zeros((2, 2, 3), np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        zt.utils.save_img(tmp_path / "rgb.jpg", pixels)
        zt.utils.save_img(tmp_path / "rgba.png", np.zeros((2, 2, 4), np.uint8))
    with pytest.warns(UserWarning, match="no transparency"):
        zt.utils.save_img(tmp_path / "rgba.jpg", np.zeros((2, 2, 4), np.uint8))


def test_batches_are_taken_skipped_and_mapped_in_any_order() -> None:
    windows = utils.timeseries_dataset_from_array(np.arange(10), None, 1, batch_size=2)
    numbers = list(range(0, 10, 2))  # the first of each batch

    def firsts(batches: Any) -> list[int]:
        listed = [int(batch.flat[0]) for batch in batches]
        assert len(listed) == len(batches)
        return listed

    assert firsts(windows.take(-1)) == firsts(windows.take(9)) == firsts(windows.map(lambda x: x).take(-1)) == numbers
    assert firsts(windows.skip(1).take(2)) == firsts(windows.take(3).skip(1)) == numbers[1:3]
    assert firsts(windows.skip(7)) == firsts(windows.take(2).skip(3)) == firsts(windows.take(0)) == []
    doubled = windows.map(lambda x: 2 * x).skip(3).prefetch().cache()
    assert firsts(doubled) == [2 * n for n in numbers[3:]] and firsts(doubled.map(lambda x: x + 1)) == [13, 17]
    for wrong in (lambda: windows.skip(-1), lambda: windows.take(-2), lambda: windows.take(1.5)):
        with pytest.raises(ConfigError, match="must be an integer of at least 0"):
            wrong()
