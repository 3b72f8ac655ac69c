"""CSV files read in batches: types of columns, order, and every way in which a file can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.data import csv_files
from ztorch.errors import ConfigError, DataError

FLOWERS = "width,color,height,kind\n1,red,2.5,rose\n3,blue,4,tulip\n\n5,red,6,rose\n"


def opened(tmp_path: Path, text: str | bytes, name: str = "t.csv", **how: Any) -> zt.data.CsvFile:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return zt.data.csv(path, **how)


def test_numbers_and_categories(tmp_path: Path) -> None:
    rows = opened(tmp_path, FLOWERS)
    assert rows.columns == ("width", "color", "height") and rows.classes == ("rose", "tulip")
    assert rows.categories == {"color": ("blue", "red")} and rows.rows == 3 and len(rows) == 1
    [(x, y)] = rows
    assert x.tolist() == [[1, 1, 2.5], [3, 0, 4], [5, 1, 6]] and x.dtype == np.float32
    assert y.tolist() == [0, 1, 0] and y.dtype == np.int32


@pytest.mark.cheap
@pytest.mark.parametrize(("how", "x", "y"), [
    ({"target": "width"}, [[1, 2.5, 0], [0, 4, 1], [1, 6, 0]], [1, 3, 5]),
    ({"target": 2, "columns": ["width"]}, [[1], [3], [5]], [2.5, 4, 6]),
    ({"columns": [2, "width"]}, [[2.5, 1], [4, 3], [6, 5]], [0, 1, 0]),
    ({"columns": ["height"], "categories": ["height"]}, [[0], [1], [2]], [0, 1, 0]),
], ids=str)
def test_columns_by_name_and_position(tmp_path: Path, how: dict, x: list, y: list) -> None:
    rows = opened(tmp_path, FLOWERS, **how)
    got, targets = rows.arrays()
    assert got.tolist() == x and targets.tolist() == y
    assert targets.dtype == (np.float32 if 2.5 in y else np.int32)


def test_agrees_with_the_table_in_memory(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(300, 5))
    text = "\n".join(",".join(map(repr, row.tolist())) for row in values)
    rows = opened(tmp_path, text, batch_size=64)
    table = zt.data.read_table(tmp_path / "t.csv")
    x, y = rows.arrays()
    assert np.array_equal(x, table.x) and table.y is not None and np.array_equal(y, table.y)
    assert [len(x) for x, _ in rows] == [64, 64, 64, 64, 44]


def test_order_is_a_function_of_seed_and_pass(tmp_path: Path) -> None:
    text = "\n".join(f"{k},{k * 2}" for k in range(50))
    rows = opened(tmp_path, text, batch_size=8, seed=4)
    first, second = (np.concatenate([x for x, _ in rows])[:, 0] for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.array_equal(np.sort(first), np.arange(50)) and np.array_equal(np.sort(second), np.arange(50))
    again = opened(tmp_path, text, batch_size=8, seed=4)
    again.epoch = 1
    got = list(again)
    assert np.array_equal(np.concatenate([x for x, _ in got])[:, 0], second)
    assert all(np.array_equal(y, 2 * x[:, 0]) for x, y in got)


@pytest.mark.cheap
@pytest.mark.parametrize(("text", "names", "x", "y"), [
    ("1;2\n3;4", (0,), [[1], [3]], [2, 4]),
    ("1\t2\r\n3\t4\r\n", (0,), [[1], [3]], [2, 4]),
    ("﻿a,b\n1,2\n", ("a",), [[1]], [2]),
    ("﻿1,2\n3,4\n", (0,), [[1], [3]], [2, 4]),
    ('1,"x\ny"\n2,"z, z"\n3,"x\ny"', (0,), [[1], [2], [3]], [0, 1, 0]),
    ("größe,städte\n1,Köln\n2,日本\n3,Köln\n", ("größe",), [[1], [2], [3]], [0, 1, 0]),
    ("1,2", (0,), [[1]], [2]),
    ("code,b\n1_2,1\n1_3,0\n", ("code",), [[0], [1]], [1, 0]),
    ("a,b\n3.4e38,1\n-3.4e38,0\n", ("a",), [[float(np.float32(3.4e38))], [float(np.float32(-3.4e38))]], [1, 0]),
], ids=["semicolons", "tabs", "mark", "mark, no header", "lines in cells", "unicode", "one line", "codes",
        "large numbers"])
def test_spellings(tmp_path: Path, text: str, names: tuple, x: list, y: list) -> None:
    rows = opened(tmp_path, text)
    got, targets = rows.arrays()
    assert rows.columns == names and got.tolist() == x and targets.tolist() == y


def test_a_header_over_text_columns_must_be_declared(tmp_path: Path) -> None:
    text = "color,kind\nred,rose\nblue,tulip\n"
    assert opened(tmp_path, text).rows == 3
    rows = opened(tmp_path, text, header=True)
    assert rows.rows == 2 and rows.columns == ("color",) and rows.classes == ("rose", "tulip")


def test_a_test_file_means_the_same(tmp_path: Path) -> None:
    train = opened(tmp_path, FLOWERS)
    test = opened(tmp_path, "width,color,height,kind\n7,red,1,tulip\n", "test.csv", like=train)
    x, y = test.arrays()
    assert x.tolist() == [[7, 1, 1]] and y.tolist() == [1] and test.classes == train.classes
    with pytest.raises(DataError, match=r"column 2 \(color\) holds 'green', which .*t\.csv does not"):
        opened(tmp_path, "width,color,height,kind\n7,green,1,rose\n", "test.csv", like=train)
    with pytest.raises(DataError, match="does not have the columns of"):
        opened(tmp_path, "width,color,kind\n7,red,rose\n", "test.csv", like=train)


def test_fit_and_split(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(200, 2)).astype(np.float32)
    text = "\n".join(f"{a!r},{b!r},{'up' if a + b > 0 else 'down'}" for a, b in x.tolist())
    train, rest = opened(tmp_path, text, seed=0, batch_size=50).split(0.2)
    assert (train.rows, rest.rows) == (160, 40)
    model = zt.Sequential([L.Input((2,)), L.Dense(2, activation="softmax")])
    program = model.compile("cpu", batch_size=32, optimizer=zt.optimizers.Adam(0.05),
                            loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    history = program.fit(train, validation_data=rest, epochs=15, verbose=0).history
    assert history["val_accuracy"][-1] > 0.9
    assert program.predict(x).shape == (200, 2)


@pytest.mark.cheap
@pytest.mark.parametrize(("text", "how", "message"), [
    ("", {}, "is empty"),
    ("\n\n", {}, "is empty"),
    ("a,b\n", {}, "header but no rows"),
    ("a,b,a\n1,2,3\n", {}, "two columns named 'a'; rename one"),
    ("1\n2\n", {}, "one column"),
    ("1,2,3\n4,5\n", {}, "line 2: 2 cells where the first row has 3"),
    ("1,2\n3,4\n5,6,7\n", {}, "line 3: 3 cells where the first row has 2"),
    ("a,b\n1,2\n,4\n", {}, r"line 3, column 1 \(a\): the cell is empty"),
    ("a,b\n1,2\n3, \n", {}, r"line 3, column 2 \(b\): the cell is empty"),
    ("1,2\nnan,4\n", {}, "line 2, column 1: 'nan' is not a finite number"),
    ("1,2\n1e39,4\n", {}, "line 2, column 1: '1e39' is beyond the range of float32; scale it first"),
    ("a,b\n1,5%\n2,7%\n", {}, r"column 2 \(b\): '5%' is not a plain number; write 5.*categories=\['b'\]"),
    ("1,2\n3,4\nNA,6\n", {}, r"line 3, column 1: 'NA' is not a number, .*categories=\[0\]"),
    ("a,b\n1,2\n", {"target": "bb"}, "did you mean 'b'"),
    ("1,2\n", {"target": 5}, "2 columns, no column 5"),
    ("a;b\n1,5;2\n", {}, r"column 1 \(a\): '1,5' has a decimal comma; write 1.5 .*categories=\['a'\]"),
    ("1,5;2,5\n3,5;4,5\n", {}, r"line 1, column 1: '1,5' has a decimal comma.*categories=\[0\]"),
    (b"1,2\n\xff\xfe,4\n", {}, "line 2 is not text in UTF-8"),
    ("1,2\n" + "3" * (1 << 20) + ",4\n", {}, "line 2 is longer than 1,048,576 bytes"),
    ("1," + "x" * 200_000 + "\n", {}, "line 1: field larger than field limit"),
], ids=lambda v: str(v)[:20])
def test_wrong_files(tmp_path: Path, text: str | bytes, how: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        opened(tmp_path, text, **how)


def test_texts_may_look_like_numbers_with_commas(tmp_path: Path) -> None:
    rows = opened(tmp_path, "a;b\n1,5;2\n0,5;3\n", categories=["a"])
    assert rows.categories == {"a": ("0,5", "1,5")}


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="no file"):
        zt.data.csv(tmp_path / "none.csv")
    with pytest.raises(ConfigError, match="not the target"):
        opened(tmp_path, FLOWERS, columns=["width", "kind"])
    with pytest.raises(ConfigError, match="leaves one side empty"):
        opened(tmp_path, FLOWERS).split(0.1)
    monkeypatch.setattr(csv_files, "MOST_CATEGORIES", 2)
    with pytest.raises(DataError, match="column 2 has more than 2 different strings"):
        opened(tmp_path, "1,a\n2,b\n3,c\n")


def test_a_file_that_changes_is_detected(tmp_path: Path) -> None:
    rows = opened(tmp_path, "1,2\n3,4\n5,6\n")
    (tmp_path / "t.csv").write_text("1\n2\n")
    with pytest.raises(DataError, match="has changed since it was opened"):
        list(rows)
