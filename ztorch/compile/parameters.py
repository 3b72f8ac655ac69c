"""The block of parameters with which a program starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ztorch.dtypes import storage_dtype, to_storage
from ztorch.graph.op import first_value
from ztorch.graph.value import Value
from ztorch.host.memory import aligned
from ztorch.host.processor import need_memory, usable_cores
from ztorch.runtime.spec import ProgramSpec

LEAST_SHARED = 1 << 20  # numbers: drawing fewer takes about as long as importing thread pools


def initial_parameters(spec: ProgramSpec, states: Mapping[str, Value],
                       constants: Iterable[np.ndarray]) -> np.ndarray:
    """Initial values of states, drawn now, and constants, each at its place.

    Args:
        spec: The specification of the program.
        states: The states by name. The function `prepare` computes those without an initial value
            when the program is loaded.
        constants: The values of each constant.
    """
    need_memory("the program", spec.params_bytes, "make layers smaller")
    block = aligned(max(spec.params_bytes, 1))[:spec.params_bytes]
    # The largest first: drawing needs more memory than the numbers take, and pages of the block
    # only count once they are written.
    order = sorted((v for v in states.values() if "data" in v.attrs), key=lambda v: -v.size)
    beside = [v for v in order if getattr(v.attrs["data"], "in_threads", False)]
    if sum(v.size for v in beside) >= LEAST_SHARED:
        _write_in_threads(spec, block, beside)
        order = [v for v in order if not getattr(v.attrs["data"], "in_threads", False)]
    for v in order:
        _write(spec, block, v)
    for (offset, size), data in zip(spec.constants, constants, strict=True):
        block[offset:offset + size] = data.reshape(-1).view(np.uint8)
    return block


def _write(spec: ProgramSpec, block: np.ndarray, v: Value) -> None:
    """Writes the first value of a state."""
    first = to_storage(storage_dtype(v.dtype), first_value(v))
    if not _is_blank(first):
        spec.states[v.attrs["name"]].write(block, first)


def _write_in_threads(spec: ProgramSpec, block: np.ndarray, states: Sequence[Value]) -> None:
    """Writes the first values of states on all cores: NumPy draws and copies without Python's lock.
    """
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    with ThreadPoolExecutor(usable_cores(), "ztorch weights") as threads:
        for _ in threads.map(lambda v: _write(spec, block, v), states):
            pass


def _is_blank(array: np.ndarray) -> bool:
    """Whether an array is a broadcast zero, which new memory already holds. Slots of optimizers
    start like this and are twice as large as the weights."""
    return not any(array.strides) and not any(array.flat[:1].tobytes())
