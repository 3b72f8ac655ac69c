"""The block of parameters that a program starts with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ztorch.dtypes import boolean, to_storage, u8
from ztorch.graph.op import first_value
from ztorch.graph.value import Value
from ztorch.host.memory import aligned
from ztorch.host.processor import need_memory


def initial_parameters(size: int, states: Mapping[str, Value], offsets: Mapping[str, int],
                       constants: Iterable[tuple[int, np.ndarray]]) -> np.ndarray:
    """First values of states, and constants, each at its offset.

    Args:
        size: The bytes of the block.
        states: The states by name. The function `prepare` computes those that have no first value,
            when the program is loaded.
        offsets: The first byte of each state.
        constants: The first byte and the numbers of each constant.
    """
    need_memory("the program", size, "make layers smaller")
    block = aligned(max(size, 1))[:size]

    def put(offset: int, data: np.ndarray) -> None:
        block[offset:offset + data.nbytes] = data.reshape(-1).view(np.uint8)

    for name, v in states.items():
        if "data" in v.attrs:
            stored = u8 if v.dtype is boolean else v.dtype
            put(offsets[name], np.ascontiguousarray(to_storage(stored, first_value(v))))
    for offset, data in constants:
        put(offset, data)
    return block
