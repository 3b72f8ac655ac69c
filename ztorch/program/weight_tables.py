"""The weights of a program by name: as arrays, or as tensors on its device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Protocol

import numpy as np

from ztorch import dispatch


class Weighted(Protocol):
    """A program, as far as its tables of weights must know it."""

    name: str

    @property
    def weight_names(self) -> list[str]: ...


class WeightArrays(dict[str, np.ndarray]):
    """Copies of all weights. Setting an item sets the program's weight too."""

    def __init__(self, program: Weighted, arrays: Mapping[str, np.ndarray]):
        super().__init__(arrays)
        self._program = program

    def __setitem__(self, name: str, value: Any) -> None:
        need_weight(self._program, name)
        dispatch.set_weight(self._program, name, value)
        super().__setitem__(name, np.array(value))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class WeightTensors(MutableMapping[str, Any]):
    """The weights as tensors: reading an item copies it on the device, setting one sets it."""

    def __init__(self, program: Weighted):
        self._program = program

    def __getitem__(self, name: str) -> Any:
        need_weight(self._program, name)
        return dispatch.weight(self._program, name)

    def __setitem__(self, name: str, value: Any) -> None:
        need_weight(self._program, name)
        dispatch.set_weight(self._program, name, value)

    def __delitem__(self, name: str) -> None:
        raise TypeError("a program keeps all its weights")

    def __iter__(self) -> Iterator[str]:
        return iter(self._program.weight_names)

    def __len__(self) -> int:
        return len(self._program.weight_names)

    def __repr__(self) -> str:
        return f"<weights of {self._program!r}>"


def need_weight(program: Weighted, name: str) -> None:
    """A KeyError unless the program has a weight of this name."""
    names = program.weight_names
    if name not in names:
        raise KeyError(f"program {program.name!r} has no weight {name!r}; it has "
                       f"{', '.join(names)}")
