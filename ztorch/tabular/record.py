"""The record of a model's data in an artifact: columns, encodings, classes, units.

Files hold these records, so every value is checked and bounded.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ztorch.files.kinds import (
    FLAG,
    OBJECT,
    TEXT,
    BadValue,
    ListOf,
    OneOf,
    OrNone,
    Real,
    String,
    Whole,
)
from ztorch.files.schema import Record, field

MOST_COLUMNS = 10_000  # of a table
MOST_WORDS = 20_000  # of a column
MOST_CLASSES = 100_000  # of a target

NUMBER = Real(-1e300, 1e300, "a finite number")
FORMAT = String(r"(%[YmdHMSfz]|[-/. :T])*", "a format of dates such as '%Y-%m-%d'")
HOST_LAYER = OneOf("CategoryEncoding", "Discretization", "Hashing", "IntegerLookup",
                   "StringLookup", "TextVectorization")
_DATE = ("days", "month, sine", "month, cosine", "weekday, sine", "weekday, cosine")
_TIME = ("hour, sine", "hour, cosine")


class ColumnRecord(Record):
    """A column, and how its cells become numbers of the model's input, its features."""

    name: str = field(TEXT)  # in the header of the table
    kind: str = field(OneOf("number", "category", "date", "text"))  # its kind
    unit: str = field(TEXT, default="")  # of its numbers, for people
    gaps: bool = field(FLAG, default=False)  # whether a feature says that a cell is a gap
    fill: float = field(NUMBER, default=0.0)  # a number or day that stands for a gap
    origin: float = field(NUMBER, default=0.0)  # is subtracted, where float32 would be too coarse
    lenient: bool = field(FLAG, default=False)  # whether texts among numbers count as gaps
    words: tuple[str, ...] = field(  # categories, or words of texts; each has a feature
        ListOf(TEXT, MOST_WORDS, f"a list of at most {MOST_WORDS} texts"), default=())
    others: bool = field(FLAG, default=False)  # whether a feature stands for other categories
    format: str = field(FORMAT, default="")  # of dates
    times: bool = field(FLAG, default=False)  # whether dates have times

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The names of the features, in order."""
        if self.kind == "number":
            names: tuple[str, ...] = (self.name,)
        elif self.kind == "date":
            names = tuple(f"{self.name}, {part}" for part in (*_DATE, *_TIME * self.times))
        elif self.kind == "category":
            names = (*(f"{self.name} = {word}" for word in self.words),
                     *(f"{self.name}, other",) * self.others)
        else:
            names = (*(f"{self.name} has {word}" for word in self.words), f"{self.name}, words")
        return (*names, *(f"{self.name} is missing",) * self.gaps)

    def check(self) -> None:
        if len(set(self.words)) < len(self.words):
            raise BadValue(list(self.words), "a list of different texts", "words")
        if self.kind == "date" and "%Y" not in self.format:
            raise BadValue(self.format, "the format of the dates", "format")


class TargetRecord(Record):
    """The target of a model."""

    name: str = field(TEXT)  # of the column; empty: it has none
    classes: tuple[str, ...] = field(  # names of its numbers; empty: it is a quantity
        ListOf(TEXT, MOST_CLASSES, f"a list of at most {MOST_CLASSES} texts"), default=())
    unit: str = field(TEXT, default="")  # of a quantity, for people


class EncoderRecord(Record):
    """A layer that runs on the host, before the model, with all that it learned."""

    name: str = field(HOST_LAYER)  # its class
    config: dict[str, Any] = field(OBJECT)  # its arguments

    def check(self) -> None:
        if type(self.config.get("vocabulary")) is str:  # a path: no artifact has files read
            raise BadValue(self.config["vocabulary"], "a list", "config", "vocabulary")


class TextRecord(EncoderRecord):
    """The texts of an input, and the layer that runs on the host and makes numbers of them."""

    shape: tuple[int, ...] = field(  # of the texts of a row
        ListOf(Whole(1, MOST_WORDS), 8, "a shape of at most 8 axes"), default=())


class PipelineRecord(Record):
    """How data become the model's input, and its output names."""

    version: int = field(Whole(1, 1))  # of these fields
    source: str = field(  # the kind of data
        OneOf("table", "images", "sounds", "arrays", "values"))
    columns: tuple[ColumnRecord, ...] = field(  # of a table, in the order of the features
        ListOf(ColumnRecord, MOST_COLUMNS, f"a list of at most {MOST_COLUMNS} columns"), default=())
    target: TargetRecord | None = field(OrNone(TargetRecord), default=None)  # null: unknown

    encoder: EncoderRecord | None = field(  # prepares values; null: another source
        OrNone(EncoderRecord), default=None)
    rate: int = field(Whole(0, 1 << 20), default=0)  # of sounds: samples a second; 0: unknown

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features of all columns."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def units(self) -> tuple[str, ...]:
        """The units of the features; empty texts for those without one."""
        return tuple(column.unit if name == column.name else ""
                     for column in self.columns for name in column.features)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; none for a quantity."""
        return self.target.classes if self.target else ()

    @property
    def width(self) -> int:
        """How many features all columns have."""
        return sum(len(column.features) for column in self.columns)

    def check(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise BadValue(names, "columns of different names", "columns")
        if (self.source == "values") != (self.encoder is not None):
            raise BadValue(self.source, "'values' where there is an encoder, and only there",
                           "source")

    def check_shapes(self, inputs: dict[str, tuple[int, ...]],
                     outputs: dict[str, tuple[int, ...]]) -> None:
        """Raises `BadValue` unless a model of these shapes takes the features and gives a number
        for each class."""
        if self.source == "table" and inputs != {"": (self.width,)}:
            raise BadValue(self.width, f"as many features as rows of the model have: {inputs}",
                           "columns")
        if self.source == "images" and len(inputs.get("", ())) != 3:
            raise BadValue(self.source, "'table': the model takes no images", "source")
        if self.source == "sounds" and len(inputs.get("", ())) not in (1, 2):
            raise BadValue(self.source, "'table': the model takes no sounds", "source")
        classes = len(self.target.classes) if self.target else 0
        if classes and outputs.get("") not in ((classes,), *([(1,)] * (classes == 2))):
            raise BadValue(classes, f"as many classes as the model has outputs: {outputs}",
                           "target", "classes")
