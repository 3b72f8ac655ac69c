"""The weights of a program by name, as tensors on its device."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Protocol

from ztorch import dispatch


class Weighted(Protocol):
    """The interface of a program that its table of weights needs."""

    name: str

    @property
    def weight_names(self) -> list[str]: ...


class ProgramWeights(MutableMapping[str, Any]):
    """The weights as tensors: reading an item returns the current weight, setting an item sets it.
    """

    def __init__(self, program: Weighted):
        self._program = program

    def __getitem__(self, name: str) -> Any:
        self._need(name)
        return dispatch.weight(self._program, name)

    def __setitem__(self, name: str, value: Any) -> None:
        self._need(name)
        dispatch.set_weight(self._program, name, value)

    def __delitem__(self, name: str) -> None:
        raise TypeError("weights of a program cannot be deleted")

    def __contains__(self, name: object) -> bool:
        return name in self._program.weight_names

    def __iter__(self) -> Iterator[str]:
        return iter(self._program.weight_names)

    def __len__(self) -> int:
        return len(self._program.weight_names)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def __repr__(self) -> str:
        return f"<weights of {self._program!r}>"

    def _need(self, name: str) -> None:
        names = self._program.weight_names
        if name not in names:
            raise KeyError(f"program {self._program.name!r} has no weight {name!r}; it has "
                           f"{', '.join(names)}")
