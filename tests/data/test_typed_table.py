"""Tables of any kind: the kinds of columns are detected, and wrong tables are explained."""

from __future__ import annotations

import datetime
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from tests.cases.tables import passengers, write_csv
from ztorch.data.columns import read_columns
from ztorch.data.kinds import LONGEST_EXAMPLE
from ztorch.errors import ConfigError, DataError


def test_columns_are_typed_and_gaps_counted(tmp_path: Path) -> None:
    columns = passengers()
    write_csv(tmp_path / "p.csv", columns)
    table = zt.data.table(tmp_path / "p.csv", target="fate")
    assert {name: kind.kind for name, kind in table.kinds.items()} == {
        "PassengerId": "ignored", "class": "category", "name": "text", "sex": "category", "age": "number",
        "fare [pound]": "number", "boarded": "date", "ship": "ignored", "fate": "category"}
    assert table.kinds["age"].gaps == columns["age"].count("") > 50
    assert table.kinds["fare [pound]"].unit == "pound" and table.kinds["boarded"].format == "%Y-%m-%d"
    assert table.kinds["PassengerId"].note == "numbers the rows"
    assert table.kinds["ship"].note == "has only one value"
    lines = str(table).splitlines()
    assert lines[0].endswith("700 rows, 9 columns") and lines[1].split() == ["column", "holds", "gaps", "values",
                                                                             "examples"]
    assert next(line for line in lines if line.startswith("sex")).split()[1:] == [
        "category", "2", *" | ".join(dict.fromkeys(columns["sex"])).split()]


def test_what_the_user_says_counts() -> None:
    cells = {"zip": ["1", "2", "1", "2"], "size": ["3", "x", "4", "5"], "day": ["20240131", "20240201", "", "20240202"],
             "note": ["a", "b", "c", "a"], "y": ["1", "2", "3", "4"]}
    table = zt.data.table(cells, "y", number=["size", "y"], category=["zip"], date=["day"], ignore=["note"])
    assert [k.kind for k in table.kinds.values()] == ["category", "number", "date", "ignored", "number"]
    assert table.kinds["size"].note == "1 strings count as gaps" and not table.classifies
    assert zt.data.table(cells, "y", number=["size"]).classifies


class Frame:
    """The common behavior of frames of several libraries."""

    def __init__(self, columns: dict[str, Any]):
        self.columns, self._arrays = list(columns), columns

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]


def test_sources_agree(tmp_path: Path) -> None:
    rows = [{"n": 1.5, "k": "a", "b": True}, {"n": None, "k": None, "b": False}, {"n": 3, "k": "c", "b": True}]
    text = "n;k;b\n1,5;a;True\n;NA;False\n3;c;True\n"
    (tmp_path / "t.csv").write_text(text, encoding="utf-8-sig")
    arrays = {"n": np.array([1.5, np.nan, 3], np.float32), "k": np.array(["a", None, "c"], object),
              "b": np.array([True, False, True])}
    for source in (rows, arrays, Frame(arrays), tmp_path / "t.csv", io.StringIO(text), io.BytesIO(text.encode())):
        table = read_columns(source)
        np.testing.assert_array_equal(table["n"].numbers, [1.5, np.nan, 3])
        assert table["k"].texts == ["a", "", "c"] and table["b"].texts == ["True", "False", "True"]
        assert table["k"].gaps.tolist() == [False, True, False]


def test_frames_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"n": [1, 2], "k": pandas.Categorical(["a", None]), "b": pandas.array([True, None]),
                              "d": pandas.to_datetime(["2024-01-31", None])})
    table = read_columns(frame)
    assert table["k"].texts == ["a", ""] and table["d"].texts == ["2024-01-31T00:00:00", ""]
    assert table["b"].texts == ["True", ""]


def test_rows_without_a_target_are_dropped_and_splits_keep_shares() -> None:
    y = ["a"] * 80 + ["b"] * 20 + [""] * 5
    table = zt.data.table({"x": list(range(105)), "y": y}, "y")
    assert table.rows == 100 and table.dropped == 5 and "5 rows without y left out" in str(table)
    train, test = table.split(0.25, seed=3)
    assert test.columns["y"].texts.count("a") == 20 and test.columns["y"].texts.count("b") == 5
    both = np.concatenate([train.columns["x"].numbers, test.columns["x"].numbers])
    assert sorted(both) == list(range(100))
    assert not np.array_equal(table.split(0.25, seed=4)[1].columns["x"].numbers, test.columns["x"].numbers)


WRONG = {
    "no such target": ({"source": {"age": [1, 2], "sex": ["m", "f"]}, "target": "sxe"}, "did you mean 'sex'"),
    "a text among numbers": ({"source": io.StringIO("a,b\n1,x\n2,y\n3,x\n4,y\nfive,x\n6,y\n")},
                             r"the input, line 6, column 'a': 'five' is not a number.*category=\['a'\]"),
    "a short row": ({"source": io.StringIO("a,b\n1,2\n3\n")}, "line 3: 1 cells where the first row has 2"),
    "a quoted line break": ({"source": io.StringIO('a,b\n1,"x\ny"\n3\n')}, "line 4: 1 cells"),
    "one name twice": ({"source": io.StringIO("a,a\n1,2\n")}, "two columns named 'a'"),
    "no rows": ({"source": io.StringIO("")}, "is empty"),
    "lengths": ({"source": {"a": [1], "b": [1, 2]}}, "'a' has 1 rows, 'b' has 2"),
    "infinite": ({"source": {"a": [1, float("inf")], "b": [1, 2]}}, "row 1, column 'a'.*finite"),
    "one class": ({"source": {"a": [1, 2], "b": ["x", "x"]}, "target": "b"}, "'x' in every row"),
    "empty target": ({"source": {"a": [1, 2], "b": ["", ""]}, "target": "b"}, "every cell of the target"),
    "no dates": ({"source": {"a": ["soon", "later"]}, "date": ["a"]}, "no dates in one format"),
    "texts as target": ({"source": {"a": range(60), "b": [f"n{k}" for k in range(60)]}, "target": "b"}, "too many"),
    "lists": ({"source": {"a": np.array([[1], [2, 3]], object)}}, "column 'a' holds values of list, neither"),
    "a table to come": ({"source": type("Lazy", (), {"collect": print})()}, r"a Lazy is not a table yet; pass its .collect\(\)"),
    "no table": ({"source": 3}, "not a int"),
    "bytes": ({"source": io.BytesIO(b"a,b\n1,\xff\n")}, "line 2 is not text in UTF-8"),
}


@together()
@pytest.mark.parametrize("name", WRONG)
def test_wrong_tables_are_explained(name: str) -> None:
    arguments, message = WRONG[name]
    if hasattr(arguments["source"], "seek"):
        arguments["source"].seek(0)
    with pytest.raises((DataError, zt.errors.UnknownName), match=message):
        zt.data.table(**arguments)


def test_wrong_options_are_explained() -> None:
    cells = {"a": [1, 2], "b": [3, 4]}
    with pytest.raises(ConfigError, match=r"must be a list of columns: \['a'\]"):
        zt.data.table(cells, number="a")
    with pytest.raises(ConfigError, match="named as number and as ignored"):
        zt.data.table(cells, number=["a"], ignore=["a"])
    with pytest.raises(ConfigError, match="target 'b' cannot be date"):
        zt.data.table(cells, "b", date=["b"])


def test_dates_are_read_in_the_order_that_all_of_them_have() -> None:
    from ztorch.data.dates import date_format, parsed_date

    assert date_format(["01/02/2024", "31/01/2024"]) == "%d/%m/%Y"
    assert date_format(["01/02/2024", "01/31/2024"]) == "%m/%d/%Y"
    assert date_format(["2024-01-31T23:30:00+0200"]) == "%Y-%m-%dT%H:%M:%S%z"
    assert parsed_date("2024-01-31T23:30:00+0200", "%Y-%m-%dT%H:%M:%S%z") == datetime.datetime(2024, 1, 31, 21, 30)
    assert date_format(["2024-01-31", "soon 2024"]) is None


def test_examples_of_cells_are_cut_to_their_length() -> None:
    fits, long = "a" * LONGEST_EXAMPLE, "b" * (LONGEST_EXAMPLE + 1)
    cells = [fits, long, "c", "d", "", "c"] * 4
    kind = zt.data.table({"word": cells, "y": [0.5 + k for k in range(24)]}, "y").kinds["word"]
    assert kind.examples == (fits, "b" * (LONGEST_EXAMPLE - 3) + "...", "c")
    assert (kind.gaps, kind.distinct) == (4, 4)


NUMERALS = {  # a file, and the numbers of its column x
    "money": ('x,y\n"$1,000",0\n-$7.50,1\n£ 3,2\n', [1000, -7.5, 3]),
    "euros": ("x;y\n1.000,50 €;0\n€ 20;1\n1.000 €;2\n", [1000.5, 20, 1000]),
    "percent": ("x,y\n5%,0\n7.5 %,1\n-1%,2\n", [5, 7.5, -1]),
    "thousands": ('x,y\n"1,234",0\n"12,500",1\n999.5,2\n', [1234, 12500, 999.5]),
    "decimal commas": ('x,y\n"1,234",0\n"0,5",1\n3,2\n', [1.234, 0.5, 3]),
    "decimal commas between semicolons": ("x;y\n1,234;0\n12,500;1\n3;2\n", [1.234, 12.5, 3]),
    "millions": ("x;y\n1,234,567;0\n2,000.5;1\n3;2\n", [1234567, 2000.5, 3])}


@pytest.mark.cheap
@pytest.mark.parametrize("name", NUMERALS)
def test_numbers_as_people_write_them(name: str) -> None:
    text, numbers = NUMERALS[name]
    table = zt.data.table(io.StringIO(text))
    assert table.kinds["x"].kind == "number" and table.columns["x"].numbers.tolist() == numbers


def test_cells_that_only_resemble_numbers_are_strings() -> None:
    cells = ["$1.234.5", "1_000", "5 apples", "$", "%", "1.234.5", "$1,000,5.25"]
    assert np.isnan(zt.data.table({"a": cells, "b": range(7)}).columns["a"].numbers).all()
    text = 'a,b\n"1,234",1\nnone at all,2\n'
    assert zt.data.table(io.StringIO(text)).columns["a"].texts == ["1,234", "none at all"]


def test_examples_of_cells_stay_in_one_line() -> None:
    assert zt.data.table({"a": ["x\ny", "z"], "b": [1, 2]}).kinds["a"].examples == ("x y", "z")


def test_large_integers_stay_apart() -> None:
    ids = [2**53 + 1, 2**53, -2**60, 2**53 + 1]
    for source in (ids, np.array(ids), np.array(ids, object)):
        column = zt.data.table({"account": source, "b": range(4)}, category=["account"]).columns["account"]
        assert column.texts == [str(k) for k in ids] and column.numbers.tolist() == [float(k) for k in ids]
    assert zt.data.table({"a": [2**53, -2**53]}).columns["a"].cells.dtype == np.float64
