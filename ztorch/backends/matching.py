"""The small programs by which a native function checks its Python arguments and builds its result.

The function works on a list of entries: its arguments, then the entries that each step adds. A step
checks an entry, or adds others: the object in a slot, the items of a sequence, the value of a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch.abi import PYTHON_BUILDS, PYTHON_STEPS


class Matching:
    """Steps that check whether a program was compiled for these arguments, and find their memory.

    Attributes:
        arguments: The number of arguments that are checked.
        entries: The length of the list after all steps.
        blocks: The entries that are memory. The arguments do not match if one of them is None.
        inputs: The number of blocks that the program reads.
        words: The steps, three machine words each.
        objects: The objects that the steps refer to, kept alive.

    Examples:
        >>> m = Matching(1)
        >>> m.items(0, [None, None])
        [1, 2]
        >>> m.same(1, None)
        >>> len(m.words) // 3, m.entries
        (3, 3)
    """

    def __init__(self, arguments: int):
        self.arguments = self.entries = arguments
        self.blocks: list[int] = []
        self.inputs = 0
        self.words: list[int] = []
        self.objects: list[Any] = []

    def slot(self, entry: int, place: int) -> int:
        """Adds the object that an entry's object refers to at a byte offset."""
        self._step("slot", entry, place)
        return self._add_entries(1)[0]

    def constant(self, x: Any) -> int:
        """Adds an object that does not depend on the arguments."""
        self._step("constant", 0, self._reference(x))
        return self._add_entries(1)[0]

    def same(self, entry: int, x: Any) -> None:
        """Requires an entry to be this object."""
        self._step("same", entry, self._reference(x))

    def one(self, entry: int, other: int) -> None:
        """Requires two entries to be the same object."""
        self._step("entry", entry, other)

    def kind(self, entry: int, kind: type[Any]) -> None:
        """Requires an entry to be of this class, and not of a subclass."""
        self._step("kind", entry, self._reference(kind))

    def number(self, entry: int, x: float) -> None:
        """Requires an entry to be a number of this type and value; 0.0 and -0.0 differ."""
        self._step("number", entry, self._reference(x))

    def references(self, entry: int, count: int) -> None:
        """Requires an entry to have this many references."""
        self._step("references", entry, count)

    def items(self, entry: int, like: Sequence[Any]) -> list[int]:
        """Requires an entry to have the class and length of `like`, and adds its items."""
        self.kind(entry, type(like))
        return self.sequence_items(entry, like)

    def sequence_items(self, entry: int, like: Sequence[Any]) -> list[int]:
        """Adds the items of an entry whose class was checked already."""
        self._step("tuple" if type(like) is tuple else "list", entry, len(like))
        return self._add_entries(len(like))

    def values(self, entry: int, keys: Sequence[str]) -> list[int]:
        """Requires an entry to be a dict with exactly these keys, and adds its values."""
        self.kind(entry, dict)
        self._step("dict", entry, len(keys))
        return [self._value(entry, key) for key in keys]

    def read(self, order: Sequence[int] | None) -> None:
        """Sets the blocks that the program reads, in this order; None: all of them."""
        read = self.blocks if order is None else [self.blocks[k] for k in order]
        for entry in read:
            self._step("block", entry, 0)
        self.inputs = len(read)

    def _value(self, entry: int, key: str) -> int:
        self._step("key", entry, self._reference(key))
        return self._add_entries(1)[0]

    def _add_entries(self, count: int) -> list[int]:
        first = self.entries
        self.entries += count
        return [*range(first, self.entries)]

    def _reference(self, x: Any) -> int:
        self.objects.append(x)
        return id(x)

    def _step(self, name: str, entry: int, word: int) -> None:
        self.words += (PYTHON_STEPS[name], entry, word)


class Building:
    """Steps that build the result of a native function, parts before the whole.

    Attributes:
        words: The steps, three machine words each.
        objects: The objects that the steps refer to, kept alive.
    """

    def __init__(self) -> None:
        self.words: list[int] = []
        self.objects: list[Any] = []

    def leaf(self, number: int) -> None:
        """Adds the tensor of an output."""
        self.words += (PYTHON_BUILDS["leaf"], number, 0)

    def row(self, kind: type[Any], size: int) -> None:
        """Replaces the last `size` parts by a tuple or list of them."""
        self.words += (PYTHON_BUILDS["tuple" if kind is tuple else "list"], size, 0)

    def table(self, keys: tuple[str, ...]) -> None:
        """Replaces the last parts by a dict with these keys."""
        self.objects.append(keys)
        self.words += (PYTHON_BUILDS["dict"], len(keys), id(keys))
