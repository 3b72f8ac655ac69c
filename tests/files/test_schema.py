"""Records: valid and invalid values of each kind of field, its output, and positions in errors."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from tests.cases.grouping import together
from ztorch.dtypes import bf16, f32
from ztorch.files.kinds import (
    DTYPE,
    FLAG,
    LONGEST_TEXT,
    OBJECT,
    SCORE,
    TEXT,
    BadValue,
    ByName,
    ListOf,
    MapOf,
    OneOf,
    OneOrNamed,
    OrNone,
    Real,
    Row,
    String,
    Whole,
)
from ztorch.files.schema import Record, field


class Point(Record, row="[x, y]"):
    """A list in JSON."""

    x: int = field(Whole(0, 9))  # across
    y: int = field(Whole(0, 9))  # down


class Shape(Record):
    """An object in JSON."""

    name: str = field(TEXT)  # once in a drawing
    points: tuple[Point, ...] = field(ListOf(Point))  # its corners
    class_: str = field(OneOf("line", "area"), default="line")  # key: class

    def check(self) -> None:
        if self.class_ == "area" and len(self.points) < 3:
            raise BadValue(len(self.points), "three or more in an area", "points")


class Drawing(Record):
    """Shapes by name."""

    shapes: dict[str, Shape] = field(ByName(Shape))  # in the order they are drawn


def wrong(kind: Any, value: Any) -> str:
    with pytest.raises(BadValue) as caught:
        kind.from_json(value)
    return str(caught.value)


FIVE = Whole(1, 5)
PAIR = Row(FIVE, TEXT, names="[number, text]")
RIGHT: list[tuple[Any, Any, Any]] = [
    (FIVE, 1, 1), (FIVE, 5, 5), (Real(0, 2, "a number"), 0, 0), (Real(0, 2, "a number"), 2.0, 2.0),
    (FLAG, True, True), (TEXT, "", ""), (TEXT, "x" * LONGEST_TEXT, "x" * LONGEST_TEXT),
    (String("[ab]+", "a or b"), "abba", "abba"), (OneOf("a", "b"), "b", "b"),
    (DTYPE, "bfloat16", bf16), (OBJECT, {"x": [1]}, {"x": [1]}), (SCORE, 1.5, 1.5),
    (SCORE, [1, "inf"], [1.0, float("inf")]),
    (SCORE, "-inf", float("-inf")), (ListOf(FIVE), [], ()), (ListOf(FIVE, 2), [1, 2], (1, 2)),
    (PAIR, [3, "c"], (3, "c")), (MapOf(FIVE), {"a": 2}, {"a": 2}), (OrNone(FIVE), None, None),
    (OrNone(FIVE), 3, 3), (OneOrNamed(FIVE), 3, {"": 3}), (OneOrNamed(FIVE), {}, {}),
    (OneOrNamed(OrNone(FIVE)), None, {"": None}),
    (OneOrNamed(OrNone(FIVE)), {"a": None, "b": 2}, {"a": None, "b": 2}),
    (OneOrNamed(OrNone(Shape), key="name"), {"name": "s", "points": [], "class": "line"},
     {"": Shape("s", ())}),
    (OneOrNamed(OrNone(Shape), key="name"), {"name": {"name": "s", "points": [], "class": "line"},
                                             "points": None},
     {"name": Shape("s", ()), "points": None}),
]


@together()
@pytest.mark.parametrize(("kind", "value", "memory"), RIGHT, ids=lambda x: str(x)[:30])
def test_valid_values_round_trip(kind: Any, value: Any, memory: Any) -> None:
    read = kind.from_json(value)
    assert read == memory and type(read) is type(memory)
    assert kind.to_json(read) == value


@together()
@pytest.mark.parametrize(("kind", "value", "message"), [
    (FIVE, 0, "the whole is 0; it must be an integer from 1 to 5"),
    (FIVE, 6, "the whole is 6; it must be an integer"),
    (FIVE, 2.0, "the whole is 2.0; it must"), (FIVE, True, "the whole is True; it must"),
    (FIVE, "2", "the whole is '2'; it must"), (FIVE, None, "the whole is None; it must"),
    (Real(0, 2, "a number"), 2.5, "the whole is 2.5; it must be a number"),
    (Real(0, 2, "a number"), -0.1, "the whole is -0.1"), (Real(0, 2, "a number"), False, "is False"),
    (Real(0, 2, "a number"), float("nan"), "is nan"), (FLAG, 1, "is 1; it must be true or false"),
    (TEXT, 3, "is 3; it must be a string"), (TEXT, "x" * (LONGEST_TEXT + 1), "xxx...; it must be"),
    (String("[ab]+", "a or b"), "abc", "is 'abc'; it must be a or b"),
    (String("[ab]+", "a or b"), "ab\n", "must be a or b"),
    (OneOf("a", "b"), "c", "is 'c'; it must be one of 'a', 'b'"), (OneOf("a"), ["a"], "must be 'a'"),
    (DTYPE, "f32", "is 'f32'; it must be a dtype such as 'float32'"), (DTYPE, [], "must be a dtype"),
    (OBJECT, [], "must be an object"), (SCORE, "NaN", "is 'NaN'; it must be a number, one of"),
    (SCORE, True, "is True"), (SCORE, ["x"], "is 'x'"), (SCORE, 10**400, "must be a number, one"),
    (ListOf(FIVE), {}, "is {}; it must be a list"), (ListOf(FIVE), [1, 9], "[1] is 9; it must"),
    (ListOf(FIVE, 2, "at most two"), [1, 1, 1], "is [1, 1, 1]; it must be at most two"),
    (PAIR, [1], "is [1]; it must be [number, text]"), (PAIR, [9, "c"], "[0] is 9"),
    (PAIR, [1, 2], "[1] is 2; it must be a string"), (PAIR, "1c", "must be a list"),
    (MapOf(FIVE), {"a": 1, "b": 7}, "b is 7"), (MapOf(FIVE), [], "must be an object"),
    (OrNone(FIVE), 7, "is 7"), (OneOrNamed(FIVE), {"a": 7}, "a is 7"),
    (OneOrNamed(FIVE), 7, "is 7"),
    (Shape, {"points": []}, "name is missing; it must be a string"),
    (Shape, {"name": "s", "points": [[1, 2], [3, 10]]}, "points[1][1] is 10; it must be an integer"),
    (Shape, {"name": "s", "points": [[1, 2, 3]]}, "points[0] is [1, 2, 3]; it must be [x, y]"),
    (Shape, {"name": "s", "points": [], "class": "dot"}, "class is 'dot'; it must be one of"),
    (Shape, {"name": "s", "points": [], "class": "area"}, "points is 0; it must be three or more"),
    (Shape, [], "the whole is []; it must be an object"),
    (Drawing, {"shapes": [{"name": "s", "points": []}, {"name": "s", "points": []}]},
     "shapes[1].name is 's'; it must be a name that occurs once"),
    (Drawing, {"shapes": [{"name": "s", "points": []}, {"name": "t", "points": [[1, -1]]}]},
     "shapes[1].points[0][1] is -1; it must be an integer from 0 to 9"),
], ids=lambda x: str(x)[:30])
def test_values_that_a_field_refuses(kind: Any, value: Any, message: str) -> None:
    assert message in wrong(kind, value)


def test_records_round_trip() -> None:
    data = {"shapes": [{"name": "s", "points": [[1, 2], [3, 4]], "class": "line"}]}
    drawing = Drawing.from_json(data)
    assert drawing == Drawing({"s": Shape("s", (Point(1, 2), Point(3, 4)))})
    assert drawing.to_json() == data and drawing.shapes["s"].points[1].y == 4
    assert Drawing.from_json({**data, "more": 3}) == drawing  # of a later version


def test_records_are_values() -> None:
    point = Point(1, y=2)
    assert repr(point) == "Point(x=1, y=2)" and point != Point(1, 3) and point != (1, 2)
    assert point.replace(y=5) == Point(1, 5) and point.y == 2
    assert len({point, Point(1, 2)}) == 1
    assert copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
    with pytest.raises(AttributeError, match="a Point is immutable"):
        point.x = 3  # type: ignore[misc]
    for make in (lambda: Point(1), lambda: Point(1, 2, 3), lambda: Point(1, 2, y=3),  # type: ignore
                 lambda: Point(1, 2, z=3)):  # type: ignore
        with pytest.raises(TypeError, match="Point"):
            make()


def test_wrong_values_are_shown_short() -> None:
    assert len(wrong(FIVE, "x" * 10_000)) < 120


def test_dtypes_are_the_existing_objects() -> None:
    assert DTYPE.from_json("float32") is f32
