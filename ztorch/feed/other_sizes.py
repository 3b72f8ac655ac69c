"""Batches of an iterator that no function of a program fits, as one step each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ztorch.runtime.loaded_program import BoundCall


class StateOwner(Protocol):
    """A program whose states another program of its model can take."""

    calls: Any

    def take_states(self, source: Any) -> None: ...


class OtherSizes:
    """Runs a function on batches of sizes that a program was not compiled for, by other programs of
    its model. They take its states before each step; those of a training step come back.

    Args:
        program: The program.
        function: The function, such as "train".
        for_sizes: Returns the program for batches of these sizes.
        more_rows: Whether to run batches of more rows; else they are cut.
        longer_rows: Whether to run longer rows; else they are an error.
    """

    def __init__(self, program: StateOwner, function: str,
                 for_sizes: Callable[[tuple[int, ...]], Any], more_rows: bool, longer_rows: bool):
        self._program, self._function, self._for_sizes = program, function, for_sizes
        self.more_rows, self.longer_rows = more_rows, longer_rows

    @contextmanager
    def call(self, sizes: tuple[int, ...]) -> Iterator[tuple[BoundCall, LentStates]]:
        """A call for a batch of these sizes, and the states that a run of it needs."""
        other = self._for_sizes(sizes)
        with other.calls.fitting(self._function, sizes) as call:
            yield call, LentStates(self._program, other, self._function == "train")


class LentStates:
    """The states of a program in another one, for the `with` block of a run.

    Args:
        owner: The program that they belong to.
        borrower: The program that runs.
        changed: Whether the run changes them, so that they are copied back.
    """

    def __init__(self, owner: StateOwner, borrower: StateOwner, changed: bool):
        self._owner, self._borrower, self._changed = owner, borrower, changed

    def __enter__(self) -> None:
        self._borrower.take_states(self._owner)

    def __exit__(self, kind: object, *exception: object) -> None:
        if self._changed and kind is None:
            self._owner.take_states(self._borrower)
