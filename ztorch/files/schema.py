"""Records that are declared once by their fields, from which reading, writing and checks follow.

    >>> from ztorch.files.kinds import FLAG, TEXT, Row, Whole
    >>> class Window(Record):
    ...     title: str = field(TEXT)  # in the title bar
    ...     size: tuple = field(Row(Whole(1, 99), Whole(1, 99), names="[width, height]"))
    ...     hidden: bool = field(FLAG, default=False)  # whether it starts minimized
    >>> Window.from_json({"title": "a", "size": [3, 4]})
    Window(title='a', size=(3, 4), hidden=False)
    >>> Window("a", (3, 4)).to_json()
    {'title': 'a', 'size': [3, 4], 'hidden': False}
    >>> Window.from_json({"title": "a", "size": [3, -4]})
    Traceback (most recent call last):
    ...
    ztorch.files.kinds.BadValue: size[1] is -4; it must be an integer from 1 to 99

Each value is checked, and an error has the path of the first wrong one. A missing field takes its
default; a field without a default is required. Unknown keys are ignored. A class may override
`check` for rules about several fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ztorch.files.kinds import ABSENT, BadValue, row_values

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:  # annotations for type checkers have no meaning when the program runs
    def dataclass_transform(**_: Any) -> Callable[[type], type]:
        return lambda cls: cls


class Field:
    """A field of a record: the kind of its values, and its default, if it is optional."""

    def __init__(self, kind: Any, default: Any):
        self.kind, self.default = kind, default

    @property
    def has_default(self) -> bool:
        """Whether it is optional."""
        return self.default is not ABSENT


def field(kind: Any, *, default: Any = ABSENT) -> Any:
    """Declares a field: `size: int = field(Whole(1, 9), default=1)`."""
    return Field(kind, default)


@dataclass_transform(field_specifiers=(field,), frozen_default=True)
class Record:
    """Base of records. Fields are attributes, and arguments of the class in their order.

    A trailing underscore of an attribute is not part of its key in JSON (`class_`). With
    `row="[name, bytes]"` the record is a list in JSON, which errors describe by this text.
    """

    fields: ClassVar[dict[str, Field]] = {}
    row: ClassVar[str] = ""
    says: ClassVar[str] = "an object"

    def __init_subclass__(cls, row: str = "") -> None:
        declared = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        for name in declared:
            delattr(cls, name)
        cls.fields, cls.row = {**cls.fields, **declared}, row
        cls.says = row or f"a {cls.__name__}"

    if not TYPE_CHECKING:
        def __init__(self, *values: Any, **named: Any):
            cls = type(self)
            if len(values) > len(cls.fields):
                raise TypeError(f"{cls.__name__} has {len(cls.fields)} fields, not {len(values)}")
            own = dict(zip(cls.fields, values, strict=False))
            for name, value in named.items():
                if name not in cls.fields or name in own:
                    raise TypeError(f"{cls.__name__} has no field {name!r}, or got it twice")
                own[name] = value
            for name, field in cls.fields.items():
                if name not in own:
                    if not field.has_default:
                        raise TypeError(f"{cls.__name__} lacks its field {name!r}")
                    own[name] = field.default
            self.__dict__.update(own)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable; replace({name}=...) returns a "
                             "changed copy")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), *(vars(self)[name] for name in self.fields)))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={vars(self)[name]!r}" for name in self.fields)
        return f"{type(self).__name__}({inside})"

    def replace(self, **changes: Any) -> Self:
        """A copy with other values of some fields."""
        return type(self)(**{**{name: vars(self)[name] for name in self.fields}, **changes})

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """The record in JSON data. Checks each value."""
        record = cls.__new__(cls)
        if cls.row:
            values = row_values(value, tuple(f.kind for f in cls.fields.values()), cls.row)
            vars(record).update(zip(cls.fields, values, strict=True))
        else:
            if type(value) is not dict:
                raise BadValue(value, "an object")
            for name, field in cls.fields.items():
                key = name.rstrip("_")
                if key not in value and field.has_default:
                    vars(record)[name] = field.default
                    continue
                try:
                    vars(record)[name] = field.kind.from_json(value.get(key, ABSENT))
                except BadValue as error:
                    raise error.inside(key) from None
        record.check()
        return record

    def check(self) -> None:
        """Raises a `BadValue` if fields contradict one another."""

    def to_json(self) -> Any:
        """The record as JSON data."""
        own = vars(self)
        if self.row:
            return [field.kind.to_json(own[name]) for name, field in self.fields.items()]
        return {name.rstrip("_"): field.kind.to_json(own[name])
                for name, field in self.fields.items()}
