"""The kinds of values in fields of records; each reads, checks and writes its values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ztorch.dtypes import ALL, DType

LONGEST_TEXT = 1000  # characters; names of layers are shorter
LONGEST_SHOWN = 60  # characters of a wrong value in a message


class Absent:
    """The value of a missing key, and the default of a required field."""

    def __repr__(self) -> str:
        return "missing"


ABSENT = Absent()


class BadValue(ValueError):
    """A value that its field does not allow. `path`: its keys from the outermost record."""

    def __init__(self, value: Any, must: str, *path: str | int):
        super().__init__()
        self.value, self.must, self.path = value, must, list(path)

    def inside(self, *path: str | int) -> BadValue:
        """This error for the enclosing record, which has the value at `path`."""
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
    """The values that a field may hold. `Record` classes are kinds, too."""

    says = "any JSON value"  # in the table of fields in the docs

    def from_json(self, value: Any) -> Any:
        """The value in memory, or a `BadValue`."""
        if value is ABSENT:
            raise BadValue(value, "present")
        return value

    def to_json(self, value: Any) -> Any:
        """The value as JSON data."""
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
    """A number that may be infinite or NaN, which are strings in JSON; or a list of numbers."""

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
    """A string of bounded length that matches a pattern, if there is one."""

    def __init__(self, pattern: str = "", says: str = "a string"):
        self.pattern, self.says = pattern and re.compile(pattern), says

    def from_json(self, value: Any) -> str:
        if type(value) is not str or len(value) > LONGEST_TEXT or (
                self.pattern and not self.pattern.fullmatch(value)):
            raise BadValue(value, self.says)
        return value


class OneOf(Kind):
    """One of several strings."""

    def __init__(self, *choices: str):
        self.choices = choices
        self.says = (f"one of {', '.join(map(repr, choices))}" if len(choices) > 1 else
                     repr(choices[0]))

    def from_json(self, value: Any) -> str:
        if type(value) is not str or value not in self.choices:
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
    """Any JSON object. Its reader checks the contents."""

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
    """The value of an entry; errors include its key."""
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
    """An object with any keys and values of one kind."""

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
    """A record for a single input or output, or an object of records by name for several. In
    memory a dict, in which a single record has the name "".

    >>> sizes = OneOrNamed(Whole(1, 9))
    >>> sizes.from_json(3), sizes.from_json({"a": 3, "b": 4})
    ({'': 3}, {'a': 3, 'b': 4})
    """

    def __init__(self, kind: Any, key: str = ""):
        """`key`: a field that is neither null nor an object, if `kind` is written as an object. It
        tells a single record from an object of several."""
        self.kind, self.key, self.by_name = kind, key, MapOf(kind)
        self.says = f"{kind.says}; if there are several, an object of these by name"

    def from_json(self, value: Any) -> dict[str, Any]:
        if type(value) is dict and type(value.get(self.key)) in (dict, type(None)):
            return self.by_name.from_json(value)
        return {"": self.kind.from_json(value)}

    def to_json(self, value: Mapping[str, Any]) -> Any:
        return self.kind.to_json(value[""]) if "" in value else self.by_name.to_json(value)


TEXT, FLAG, OBJECT, DTYPE, SCORE = String(), Flag(), AnyObject(), Dtype(), Score()
# Without control characters, since a terminal shows it.
LINE = String(r"[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*", "a line of printable characters")
