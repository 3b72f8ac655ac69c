"""The program of the threads of a grid of blocks: one statement of a thread after the other.

Numbers of a thread are values of rank 0. Their leaves represent the result of a statement: an
element that was loaded, the value of a variable, the counter of a loop.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ztorch.dtypes import DType
from ztorch.graph.text import text_of
from ztorch.graph.value import Graph, Value

SUBGROUP = 32  # neighboring threads that exchange values: the same on every device


@dataclass(frozen=True)
class ThreadArray:
    """An array that threads read or write, as they see it: flat."""

    name: str  # an identifier; in errors
    dtype: DType  # of an element
    size: int  # number of elements
    shared: bool = False  # whether each block has its own, which its threads share
    written: bool = False  # whether threads change it


@dataclass(frozen=True, eq=False)
class ThreadVariable:
    """A variable: each thread has its own. It is 0 before it is set."""

    number: int  # tells it from the others
    dtype: DType  # of its value


@dataclass(frozen=True, eq=False)
class LoadElement:
    """Reads an element."""

    result: Value  # leaf
    array: str  # name
    index: Value


@dataclass(frozen=True, eq=False)
class StoreElement:
    """Writes an element."""

    array: str  # name
    index: Value
    x: Value


@dataclass(frozen=True, eq=False)
class AtomicUpdate:
    """Changes an element, with no other thread in between."""

    result: Value  # leaf: the element before
    how: str  # add, min, max, exchange or cas
    array: str  # name
    index: Value
    operands: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class GetVariable:
    """Reads a variable."""

    result: Value  # leaf
    variable: ThreadVariable


@dataclass(frozen=True, eq=False)
class SetVariable:
    """Sets a variable."""

    variable: ThreadVariable
    x: Value


@dataclass(frozen=True, eq=False)
class CountedLoop:
    """A counted loop, which also ends where `test` computes false."""

    counter: Value  # leaf
    start: Value
    stop: Value
    step: int  # above 0
    before_test: tuple[ThreadStatement, ...]  # run before each test
    test: Value | None  # None: nothing ends it early
    body: tuple[ThreadStatement, ...]


@dataclass(frozen=True, eq=False)
class Branch:
    """Two ways to go."""

    condition: Value
    yes: tuple[ThreadStatement, ...]
    no: tuple[ThreadStatement, ...]


@dataclass(frozen=True, eq=False)
class Barrier:
    """All threads of a block wait for one another; after it they see each other's writes."""


@dataclass(frozen=True, eq=False)
class Exchange:
    """The value that another thread of the subgroup has."""

    result: Value  # leaf
    x: Value
    lane: Value | int  # the thread in its subgroup; an int: this one's number xor that


ThreadStatement = (LoadElement | StoreElement | AtomicUpdate | GetVariable | SetVariable
                   | CountedLoop | Branch | Barrier | Exchange)


@dataclass(frozen=True, eq=False)
class ThreadProgram:
    """A grid of blocks of threads, and the statements of each."""

    blocks: int  # of the grid
    threads: int  # of a block
    block: Value  # leaf: number of the block
    thread: Value  # leaf: number of the thread in its block
    arrays: tuple[ThreadArray, ...]  # in the order of the arguments; those that are written last
    shared: tuple[ThreadArray, ...]
    variables: tuple[ThreadVariable, ...]
    body: tuple[ThreadStatement, ...]
    # Where users wrote the statements, for errors.
    lines: dict[ThreadStatement, str] = field(default_factory=dict)
    note: str = ""  # of a gradient: the numbers it keeps of the forward pass

    @property
    def written(self) -> tuple[ThreadArray, ...]:
        """The arrays that it changes, which are its results."""
        return tuple(a for a in self.arrays if a.written)

    @property
    def size(self) -> int:
        """How many statements there are, for estimates."""
        return sum(1 for _ in statements_of(self.body))

    @property
    def shared_bytes(self) -> int:
        """Memory that the threads of a block share, in bytes."""
        return sum(a.size * a.dtype.bytes for a in self.shared)

    @functools.cached_property
    def text(self) -> str | None:
        """Equal for programs that do the same; None where ops of users are in them."""
        lines: list[str] = [repr((self.blocks, self.threads, self.arrays, self.shared))]
        for s in statements_of(self.body):
            text = text_of(Graph({str(k): v for k, v in enumerate(values_of(s))}))
            if text is None:
                return None
            lines.append(f"{_plain(s)}\n{text}")
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def __repr__(self) -> str:
        """The key of equal programs: attributes of nodes are compared by it."""
        return f"<threads {self.text or id(self)}>"


def statements_of(body: Sequence[ThreadStatement]) -> Iterator[ThreadStatement]:
    """All statements, those inside loops and branches after the one that holds them."""
    for s in body:
        yield s
        if isinstance(s, CountedLoop):
            yield from statements_of((*s.before_test, *s.body))
        elif isinstance(s, Branch):
            yield from statements_of((*s.yes, *s.no))


def reads_unwritten(program: ThreadProgram) -> ThreadStatement | None:
    """The first statement that reads a shared array which no statement writes, if there is one."""
    own = {a.name for a in program.shared}
    reads: dict[str, ThreadStatement] = {}
    for s in statements_of(program.body):
        if isinstance(s, StoreElement) or (isinstance(s, AtomicUpdate) and s.how == "exchange"):
            own.discard(s.array)
        elif isinstance(s, (LoadElement, AtomicUpdate)):
            reads.setdefault(s.array, s)
    return next((s for name, s in reads.items() if name in own), None)


def values_of(s: ThreadStatement) -> list[Value]:
    """The values that a statement holds, its result first."""
    return [v for x in vars(s).values() for v in (x if isinstance(x, tuple) else (x,))
            if isinstance(v, Value)]


def _plain(s: ThreadStatement) -> str:
    """The fields of a statement beside values."""
    words = [type(s).__name__]
    for name, x in vars(s).items():
        if isinstance(x, ThreadVariable):
            words.append(f"{x.number} {x.dtype}")
        elif isinstance(x, tuple) and not any(isinstance(v, Value) for v in x):
            words.append(f"{name}:{sum(1 for _ in statements_of(x))}")
        elif not isinstance(x, (tuple, Value)):
            words.append(repr(x))
    return " ".join(words)
