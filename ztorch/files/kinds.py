"""Kinds of values that fields of records hold; each one reads, checks and writes its values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ztorch.dtypes import ALL, DType

LONGEST_TEXT = 1000  # characters: names of users' layers are shorter
LONGEST_SHOWN = 60  # characters of a wrong value in an error


class Absent:
    """The value of a key that is not there, and the default of a field that has none."""

    def __repr__(self) -> str:
        return "missing"


ABSENT = Absent()


class BadValue(ValueError):
    """A value that its field does not allow; `path` leads to it from the outermost record."""

    def __init__(self, value: Any, must: str, *path: str | int):
        super().__init__()
        self.value, self.must, self.path = value, must, list(path)

    def inside(self, *path: str | int) -> BadValue:
        """The same error, seen from a record that holds this one at `path`."""
        self.path[:0] = path
        return self

    def __str__(self) -> str:
        """
        >>> str(BadValue(-3, "positive", "shape", 1))
        'shape[1] is -3; it must be positive'
        """
        place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.path)
        shown = repr(self.value)
        shown = shown if len(shown) < LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN - 3]}..."
        return f"{place.removeprefix('.') or 'the whole'} is {shown}; it must be {self.must}"


class Kind:
    """The values that a field may hold; a `Record` class is one as well."""

    says = "any JSON value"  # in the table of fields in the docs

    def from_json(self, value: Any) -> Any:
        """The value in memory, or a `BadValue`."""
        if value is ABSENT:
            raise BadValue(value, "there")
        return value

    def to_json(self, value: Any) -> Any:
        """The value as JSON has it."""
        return value


class Whole(Kind):
    """An integer within bounds, both included."""

    def __init__(self, low: int, high: int):
        self.low, self.high = low, high
        self.says = f"an integer from {low} to {high}"

    def from_json(self, value: Any) -> int:
        if type(value) is not int or not self.low <= value <= self.high:
            raise BadValue(value, self.says)
        return value


class Real(Kind):
    """A finite number within bounds."""

    def __init__(self, low: float, high: float, says: str):
        self.low, self.high, self.says = low, high, says

    def from_json(self, value: Any) -> float:
        if type(value) not in (int, float) or not self.low <= value <= self.high:
            raise BadValue(value, self.says)
        return value


class Score(Kind):
    """A number that may be infinite or NaN; JSON has no such numbers, so they are texts there.
    A score of several numbers is a list of them."""

    says = "a number, one of 'nan', 'inf', '-inf', or a list of these"

    def from_json(self, value: Any) -> Any:
        if type(value) is list:
            return [self.from_json(number) for number in value]
        if type(value) in (int, float) or value in ("nan", "inf", "-inf"):
            try:
                return float(value)
            except OverflowError:
                pass
        raise BadValue(value, self.says)

    def to_json(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.to_json(number) for number in value]
        return value if abs(value) < float("inf") else repr(value)


class Flag(Kind):
    """True or false."""

    says = "true or false"

    def from_json(self, value: Any) -> bool:
        if type(value) is not bool:
            raise BadValue(value, self.says)
        return value


class String(Kind):
    """A text of bounded length, and of a pattern where one is given."""

    def __init__(self, pattern: str = "", says: str = "a text"):
        self.pattern, self.says = pattern and re.compile(pattern), says

    def from_json(self, value: Any) -> str:
        if type(value) is not str or len(value) > LONGEST_TEXT or (
                self.pattern and not self.pattern.fullmatch(value)):
            raise BadValue(value, self.says)
        return value


class OneOf(Kind):
    """One of a few texts."""

    def __init__(self, *texts: str):
        self.texts = texts
        self.says = (f"one of {', '.join(map(repr, texts))}" if len(texts) > 1 else
                     repr(texts[0]))

    def from_json(self, value: Any) -> str:
        if type(value) is not str or value not in self.texts:
            raise BadValue(value, self.says)
        return value


class Dtype(Kind):
    """The long name of a dtype."""

    says = "a dtype such as 'float32'"

    def from_json(self, value: Any) -> DType:
        for d in ALL:
            if d.long == value:
                return d
        raise BadValue(value, self.says)

    def to_json(self, value: DType) -> str:
        return value.long


class AnyObject(Kind):
    """Any JSON object: its user checks the contents."""

    says = "an object"

    def from_json(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise BadValue(value, self.says)
        return value


class ListOf(Kind):
    """A list of values of one kind; a tuple in memory."""

    def __init__(self, kind: Any, most: int | None = None, says: str = ""):
        self.kind, self.most = kind, most
        self.says = says or f"a list, each {kind.says}"

    def from_json(self, value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise BadValue(value, "a list")
        if self.most is not None and len(value) > self.most:
            raise BadValue(value, self.says)
        return tuple(_read_item(self.kind, item, k) for k, item in enumerate(value))

    def to_json(self, value: Any) -> list[Any]:
        return [self.kind.to_json(item) for item in value]


class Row(Kind):
    """A list of as many values as there are kinds; a tuple in memory."""

    def __init__(self, *kinds: Any, names: str):
        self.kinds, self.says = kinds, names

    def from_json(self, value: Any) -> tuple[Any, ...]:
        return tuple(row_values(value, self.kinds, self.says))

    def to_json(self, value: Any) -> list[Any]:
        return [kind.to_json(item) for kind, item in zip(self.kinds, value, strict=True)]


def row_values(value: Any, kinds: tuple[Any, ...], must: str) -> list[Any]:
    """The values of a list that has one of each kind."""
    if type(value) is not list:
        raise BadValue(value, "a list")
    if len(value) != len(kinds):
        raise BadValue(value, must)
    return [_read_item(kind, value[k], k) for k, kind in enumerate(kinds)]


def _read_item(kind: Any, value: Any, key: str | int) -> Any:
    """The value in memory of the entry at `key`; an error says so."""
    try:
        return kind.from_json(value)
    except BadValue as error:
        raise error.inside(key) from None


class ByName(Kind):
    """A list of records in JSON, and in memory a dict of them by their `name`, in order."""

    def __init__(self, record: Any):
        self.listed = ListOf(record)
        self.says = self.listed.says

    def from_json(self, value: Any) -> dict[str, Any]:
        records: dict[str, Any] = {}
        for k, record in enumerate(self.listed.from_json(value)):
            if record.name in records:
                raise BadValue(record.name, "a name that occurs once", k, "name")
            records[record.name] = record
        return records

    def to_json(self, value: Mapping[str, Any]) -> list[Any]:
        return self.listed.to_json(value.values())


class MapOf(Kind):
    """An object whose keys are anybody's and whose values are of one kind."""

    def __init__(self, kind: Any):
        self.kind = kind
        self.says = f"an object by name, each {kind.says}"

    def from_json(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise BadValue(value, "an object")
        return {key: _read_item(self.kind, item, key) for key, item in value.items()}

    def to_json(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self.kind.to_json(item) for key, item in value.items()}


class OrNone(Kind):
    """A value of a kind, or null."""

    def __init__(self, kind: Any):
        self.kind = kind
        self.says = f"{kind.says}, or null"

    def from_json(self, value: Any) -> Any:
        return None if value is None else self.kind.from_json(value)

    def to_json(self, value: Any) -> Any:
        return None if value is None else self.kind.to_json(value)


class OneOrNamed(Kind):
    """A record for a single input or output, or one for each of several by name. In memory a dict,
    in which a single one has the name "".

    >>> sizes = OneOrNamed(Whole(1, 9))
    >>> sizes.from_json(3), sizes.from_json({"a": 3, "b": 4})
    ({'': 3}, {'a': 3, 'b': 4})
    """

    def __init__(self, kind: Any, key: str = ""):
        """`key` names a field of `kind` that is neither null nor an object, where `kind` is
        written as an object: it tells one such object from several."""
        self.kind, self.key, self.named = kind, key, MapOf(kind)
        self.says = f"{kind.says}; where there are several, an object of these by name"

    def from_json(self, value: Any) -> dict[str, Any]:
        if type(value) is dict and type(value.get(self.key)) in (dict, type(None)):
            return self.named.from_json(value)
        return {"": self.kind.from_json(value)}

    def to_json(self, value: Mapping[str, Any]) -> Any:
        return self.kind.to_json(value[""]) if "" in value else self.named.to_json(value)


TEXT, FLAG, OBJECT, DTYPE, SCORE = String(), Flag(), AnyObject(), Dtype(), Score()
