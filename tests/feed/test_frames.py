"""Frames with columns of categories. The stand-ins answer as pandas, polars and Arrow do."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.programs import classifier, flowers, same_states
from ztorch import foreign_frames as frames
from ztorch import layers as L
from ztorch.errors import DataError

X, Y = flowers(20)


class PandasColumn:
    """A column of categories: as an array it is text."""

    def __init__(self, codes: np.ndarray):
        self._codes = codes

    @property
    def cat(self) -> Any:
        class Accessor:
            codes = self._codes

        return Accessor

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array([f"class {k}" for k in self._codes], object)


class EnumColumn(PandasColumn):
    """That of polars."""

    dtype = "Enum(categories=['class 0', 'class 1'])"
    cat = None

    def to_physical(self) -> np.ndarray:
        return self._codes


class ArrowColumn:
    def __init__(self, codes: np.ndarray):
        self._codes = codes

    def combine_chunks(self) -> Any:
        return ArrowArray(self._codes)


class ArrowArray:
    def __init__(self, codes: np.ndarray):
        self.indices = codes

    def dictionary_encode(self) -> Any:
        raise NotImplementedError


class Frame:
    def __init__(self, columns: dict[str, Any]):
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    @property
    def shape(self) -> tuple[int, int]:
        return 20, len(self._columns)

    def __len__(self) -> int:
        return 20

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise AssertionError("its columns are read")

    def __arrow_c_stream__(self) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("column", [PandasColumn, EnumColumn, ArrowColumn, ArrowArray])
def test_categories_are_their_numbers(column: Any) -> None:
    x = np.column_stack([X[:, :3], Y])
    frame = Frame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "kind": column(Y)})
    a, b = classifier(), classifier()
    a.fit(x, Y, verbose=0)
    b.fit(frame, column(Y), verbose=0)
    assert same_states(a, b)
    np.testing.assert_array_equal(b.predict(frame), a.predict(x))
    gaps = np.where(np.arange(20) == 7, -1, Y)
    with pytest.raises(DataError, match="column 'kind' of x has no category in row 7"):
        b.predict(Frame({"kind": column(gaps)}))
    with pytest.raises(DataError, match=r"column 'kind' of x holds .* values, not numbers"):
        b.predict(Frame({"kind": np.array(["x"] * 20)}))


class ByProtocol:
    """A frame that gives its columns by the dataframe protocol alone."""

    def __init__(self, frame: Frame):
        self.frame = frame

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        return self.frame


def test_columns_by_the_dataframe_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {name: X[:, k].astype(float) for k, name in enumerate("abcd")}
    frame = ByProtocol(Frame(columns))
    monkeypatch.setattr(frames, "_READERS", ("json",))
    with pytest.raises(DataError, match=r"a ByProtocol only has .* pyarrow and pandas"):
        classifier().predict(frame)
    reader: Any = types.ModuleType("reader")
    reader.from_dataframe = lambda x: x.__dataframe__()
    monkeypatch.setitem(sys.modules, "reader", reader)
    monkeypatch.setattr(frames, "_READERS", ("none_of_that_name", "json", "reader"))
    program = classifier()
    np.testing.assert_array_equal(program.predict(frame), program.predict(X))
    assert zt.data.table(frame).rows == 20


@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_gaps_are_named_where_nothing_fills_them(nothing: Any) -> None:
    cells = [1.0, nothing, 3.0, nothing]
    frame = Frame({"a": np.array(cells, object), "b": np.ones(4)})
    with pytest.raises(DataError, match="column 'a' of x has a gap in row 1, 2 in all"):
        classifier().predict(frame)
    assert "gaps  values" in str(zt.data.table(frame)) and zt.data.table(frame).kinds["a"].gaps == 2


def test_durations_get_an_error_that_asks_for_numbers() -> None:
    frame = Frame({"a": np.array([1, 2], "timedelta64[h]"), "b": np.ones(2)})
    for read in classifier().predict, zt.data.table:
        with pytest.raises(DataError, match=r"column 'a' .*durations; .* \.dt\.total_seconds\(\)"):
            read(frame)


def test_columns_are_inputs_by_name() -> None:
    kind, size = L.Input((1,), name="kind", dtype="int32"), L.Input((1,), name="size")
    words = L.Flatten()(L.Embedding(3, 2)(kind))
    model = zt.Model([kind, size], L.Dense(1)(L.Concatenate()([words, size])))
    frame = Frame({"size": X[:, 0], "more": X[:, 1], "kind": PandasColumn(Y)})
    np.testing.assert_array_equal(model.predict(frame), model.predict(
        {"kind": Y, "size": X[:, 0]}))
    with pytest.raises(DataError, match="x lacks 'size'"):
        model.predict(Frame({"kind": PandasColumn(Y)}))


def test_columns_available_only_by_arrow_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader:
        def __arrow_c_stream__(self, schema: Any = None) -> Any: ...

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match="a Reader gives its columns by Arrow's stream alone, which pyarrow reads"):
        classifier().predict(Reader())
    table = types.SimpleNamespace(table=lambda x: ArrowTable(dict(zip("abcd", X.T, strict=True))))
    monkeypatch.setitem(sys.modules, "pyarrow", table)
    p = classifier()
    np.testing.assert_array_equal(p.predict(Reader()), p.predict(X))
    assert zt.data.table(Reader()).rows == len(X)


class ArrowTable(dict[str, Any]):
    """A table as Arrow's."""

    def __init__(self, columns: dict[str, Any]):
        super().__init__(columns)
        self.column_names = list(columns)

    def __arrow_c_stream__(self, schema: Any = None) -> Any: ...
