"""The command line on rows of different lengths."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.commands.results import Run, fails, ok
from ztorch.data.json_lines import begins_as_json_lines, read_json_lines, to_json_lines

READER = """
from ztorch import Sequential, layers as L
LOSS = "sparse_categorical_crossentropy"
MODEL = Sequential([L.Input(("time",), dtype="int32"), L.Embedding(9, 4), L.LSTM(4),
                    L.Dense(2, activation="softmax")], name="reader")
"""

TWO = """
from ztorch import Model, layers as L
LOSS = "mse"
words, meta = L.Input(("time", 2), name="words"), L.Input((3,), name="meta")
MODEL = Model([words, meta], {"tags": L.Conv1D(1, 3, padding="same")(words),
                              "size": L.Dense(1)(meta)}, name="two")
"""


def test_rows_of_different_lengths(run: Run, tmp_path: Path) -> None:
    """Sizes follow the data, texts become classes, and predictions are those of Python."""
    (tmp_path / "reader.py").write_text(READER)
    rows = [np.arange(1 + k % 8 + 8 * (k % 2)) % 9 for k in range(20)]
    lines = [{"x": row.tolist(), "y": "odd" if len(row) % 2 else "even"} for row in rows]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    output = ok(run("train", "reader.py", "--data", "d.jsonl", "--epochs", 1, "--val", "d.jsonl",
                    "--batch-size", 4, "--out", "a.zt"))
    assert "Sizes that hold all rows: time 8, 16" in output
    assert "time   8, 16" in ok(run("inspect", "a.zt"))
    expected = zt.load("a.zt").predict(rows)
    ok(run("run", "a.zt", "d.jsonl", "-o", "y.jsonl"))
    actual = np.float32([json.loads(line) for line in (tmp_path / "y.jsonl").read_text().splitlines()])
    np.testing.assert_array_equal(actual, expected)
    output = ok(run("run", "a.zt", "d.jsonl", "--classes"))
    assert output.split()[1:] == [("even", "odd")[k] for k in expected.argmax(1)]
    ok(run("report", "a.zt", "--data", "d.jsonl", "-o", "r.html"))
    assert "4 " in ok(run("bench", "reader.py", "--batch-sizes", 4, "--seconds", 0.01, "--sizes", "time=8"))
    fails(run("bench", "reader.py"), "leaves axes open \\(time\\).*--sizes time=64", 2)
    (tmp_path / "none.jsonl").write_text("[1]\n[]\n")
    fails(run("run", "a.zt", "none.jsonl"), r"x\[1\] is empty along axis 'time': .*omit it")
    (tmp_path / "long.jsonl").write_text(f"{[1] * 17}\n[2]\n")
    fails(run("run", "a.zt", "long.jsonl"), "axis 'time' of x.* has size 17, .*up to 16 \\(8, 16\\)")


def test_several_inputs_and_outputs_in_lines(run: Run, tmp_path: Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two.py").write_text(TWO)
    random = np.random.default_rng(0)
    rows = [{"words": random.random((n, 2)), "meta": random.random(3), "tags": random.random((n, 1)),
             "size": random.random(1)} for n in (3, 5, 1, 8)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    (tmp_path / "d.jsonl").write_text(to_json_lines(columns))
    ok(run("train", "two.py", "--data", "d.jsonl", "--epochs", 1, "--out", "a.zt"))
    ok(run("run", "a.zt", "d.jsonl", "-o", "y.jsonl"))
    actual = read_json_lines(tmp_path / "y.jsonl")
    expected = zt.load("a.zt").predict({"words": columns["words"], "meta": np.stack(columns["meta"])})
    for k in range(4):
        np.testing.assert_array_equal(np.float32(actual["tags"][k]), expected["tags"][k])
        np.testing.assert_array_equal(np.float32(actual["size"][k]), expected["size"][k])
    fails(run("run", "a.zt", "d.jsonl", "-o", "y.npz"), "rows of 'tags' differ in size; .*a .jsonl")
    stream = io.TextIOWrapper(io.BytesIO((tmp_path / "d.jsonl").read_bytes()))
    monkeypatch.setattr("sys.stdin", stream)
    from ztorch.commands.named_arrays import of_program, read

    x, _ = read("-", of_program(zt.load("a.zt")))
    assert [len(row) for row in x["words"]] == [3, 5, 1, 8]


WRONG = {
    '{"x": [1,2': r"line 1 is not JSON \(.*; write one row per line, such as \[1, 2\]",
    "[" * 100_000: "line 1 is not JSON \\(it is nested too deeply\\)",
    "[[1],[2,3]]": "line 1, x is a list of lists of different lengths",
    '{"y": 3}': "has no 'x'; it has y",
    "\n[1, null]": "line 2, x is neither numbers nor strings",
    '{"a": 1}\n{"b": 2}': "line 2 has 'b', but the first line has 'a'; give each line the same names",
    "\n": "holds no rows",
}


@pytest.mark.parametrize("content", WRONG)
def test_wrong_lines(content: str, tmp_path: Path) -> None:
    from ztorch.commands.data import read_rows

    (tmp_path / "bad.jsonl").write_text(content)
    with pytest.raises(zt.errors.DataError, match=f"bad.jsonl.*{WRONG[content]}"):
        read_rows(str(tmp_path / "bad.jsonl"))


def test_a_mark_of_unicode_does_not_hide_json_lines() -> None:
    assert begins_as_json_lines(b"\xef\xbb\xbf[1, 2]") and not begins_as_json_lines(b"\xef\xbb\xbf1,2")
    assert read_json_lines(b"\xef\xbb\xbf[1, 2]\r\n[3, 4]\r\n")["x"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("name", ["lines.txt", "LINES.TXT"])
def test_each_line_of_a_text_file_is_a_row(name: str, tmp_path: Path) -> None:
    """A form feed and a line separator of Unicode are part of a line, as in editors."""
    from ztorch.commands.data import read_inputs

    words = zt.layers.TextVectorization(vocabulary=["good"], output_sequence_length=2)
    model = zt.Sequential([words, zt.layers.Embedding(3, 1), zt.layers.GlobalAveragePooling1D()])
    (tmp_path / name).write_bytes("\ufeffgood\u2028day\r\nbad\x0cday\n".encode())
    rows = read_inputs(str(tmp_path / name), model.compile("cpu:scalar", batch_size=1))
    assert rows == ["good\u2028day", "bad\x0cday"]
