"""How a native function for Python checks its arguments, and builds the tree that it returns.

It works on a list of entries: first its arguments, then those that each step adds. A step checks an
entry, or adds others: the object in a slot, the items of a sequence, the value of a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ztorch.abi import PYTHON_BUILDS, PYTHON_STEPS


class Matching:
    """Steps by which a native function checks that its program was compiled for these arguments,
    and finds the memory that it reads.

    Attributes:
        arguments: How many of its arguments are checked.
        entries: Length of the list when all steps are done.
        blocks: Entries that are memory. Where one is None, there is no memory yet: no match.
        inputs: How many of those the program reads.
        words: The steps, three words each.
        objects: Objects that the steps refer to, to keep them alive.

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
        """Adds the object that another refers to at a place, in bytes."""
        self._step("slot", entry, place)
        return self._added(1)[0]

    def constant(self, x: Any) -> int:
        """Adds an object that does not depend on the arguments."""
        self._step("constant", 0, self._kept(x))
        return self._added(1)[0]

    def same(self, entry: int, x: Any) -> None:
        """An entry must be this object."""
        self._step("same", entry, self._kept(x))

    def one(self, entry: int, other: int) -> None:
        """Two entries must be one object."""
        self._step("entry", entry, other)

    def kind(self, entry: int, kind: type[Any]) -> None:
        """An entry must be of this class, not of a subclass."""
        self._step("kind", entry, self._kept(kind))

    def number(self, entry: int, x: float) -> None:
        """An entry must be a number of this type and value; 0.0 and -0.0 are two."""
        self._step("number", entry, self._kept(x))

    def references(self, entry: int, count: int) -> None:
        """An entry must have this many references."""
        self._step("references", entry, count)

    def items(self, entry: int, like: Sequence[Any]) -> list[int]:
        """Adds the items of an entry, which must have the class and length of `like`."""
        self.kind(entry, type(like))
        return self.items_of_known(entry, like)

    def items_of_known(self, entry: int, like: Sequence[Any]) -> list[int]:
        """Adds the items of an entry that is known to be a tuple or list."""
        self._step("tuple" if type(like) is tuple else "list", entry, len(like))
        return self._added(len(like))

    def values(self, entry: int, keys: Sequence[str]) -> list[int]:
        """Adds the values of an entry, which must be a dict with exactly these keys."""
        self.kind(entry, dict)
        self._step("dict", entry, len(keys))
        return [self._value(entry, key) for key in keys]

    def read(self, order: Sequence[int] | None) -> None:
        """The program reads these of the blocks, in this order; None: all of them."""
        read = self.blocks if order is None else [self.blocks[k] for k in order]
        for entry in read:
            self._step("block", entry, 0)
        self.inputs = len(read)

    def _value(self, entry: int, key: str) -> int:
        self._step("key", entry, self._kept(key))
        return self._added(1)[0]

    def _added(self, count: int) -> list[int]:
        first = self.entries
        self.entries += count
        return [*range(first, self.entries)]

    def _kept(self, x: Any) -> int:
        self.objects.append(x)
        return id(x)

    def _step(self, name: str, entry: int, word: int) -> None:
        self.words += (PYTHON_STEPS[name], entry, word)


class Building:
    """How a native function builds the tree that it returns: parts first.

    Attributes:
        words: The steps, three words each.
        objects: Objects that the steps refer to, to keep them alive.
    """

    def __init__(self) -> None:
        self.words: list[int] = []
        self.objects: list[Any] = []

    def leaf(self, number: int) -> None:
        """The tensor of an output."""
        self.words += (PYTHON_BUILDS["leaf"], number, 0)

    def row(self, kind: type[Any], size: int) -> None:
        """A tuple or list of the last parts."""
        self.words += (PYTHON_BUILDS["tuple" if kind is tuple else "list"], size, 0)

    def table(self, keys: tuple[str, ...]) -> None:
        """A dict of the last parts."""
        self.objects.append(keys)
        self.words += (PYTHON_BUILDS["dict"], len(keys), id(keys))
