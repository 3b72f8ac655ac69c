"""The block of parameters with which a program starts."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ztorch.dtypes import DType, storage_dtype, to_storage
from ztorch.graph.op import LEAF
from ztorch.graph.value import Value
from ztorch.host.memory import aligned
from ztorch.host.processor import need_memory
from ztorch.runtime.first_values import FirstValues
from ztorch.runtime.spec import ProgramSpec

LEAST_DEFERRED = 1 << 20  # numbers: drawing fewer takes about as long as importing thread pools


def initial_parameters(spec: ProgramSpec, states: Mapping[str, Value],
                       constants: Iterable[np.ndarray]) -> np.ndarray:
    """Initial values of states, drawn now, and constants, each at its place.

    Args:
        spec: The specification of the program.
        states: The states by name. The function `prepare` computes those without an initial value
            when the program is loaded.
        constants: The values of each constant.
    """
    block, first = begun_parameters(spec, states, constants)
    if first is not None:
        first.write(block)
    return block


def begun_parameters(spec: ProgramSpec, states: Mapping[str, Value],
                     constants: Iterable[np.ndarray]) -> tuple[np.ndarray, FirstValues | None]:
    """The block without those values that take long to draw, and these.

    The arguments are those of `initial_parameters`.
    """
    need_memory("the program", spec.params_bytes, "make layers smaller")
    block = aligned(max(spec.params_bytes, 1))[:spec.params_bytes]
    # The largest first: drawing needs more memory than the numbers take, and pages of the block
    # only count once they are written.
    order = sorted((v for v in states.values() if "data" in v.attrs), key=lambda v: -v.size)
    later = {v: rule for v in order if (rule := _later(v)) is not None}
    first = None
    if sum(v.size for v in later) >= LEAST_DEFERRED:
        first = FirstValues({v.attrs["name"]: functools.partial(
            _write, spec, v.dtype, {**v.attrs, "data": rule}) for v, rule in later.items()})
        order = [v for v in order if v not in later]
    for v in order:
        _write(spec, v.dtype, v.attrs, block)
    for (offset, size), data in zip(spec.constants, constants, strict=True):
        block[offset:offset + size] = data.reshape(-1).view(np.uint8)
    return block, first


def _later(v: Value) -> Any:
    """The rule by which the first value of a state may be drawn later; None if it has none."""
    begin = getattr(v.attrs["data"], "later", None)
    return None if begin is None else begin()


def _write(spec: ProgramSpec, d: DType, attrs: Mapping[str, Any], block: np.ndarray) -> None:
    """Writes the first value of a state with these attributes."""
    first = to_storage(storage_dtype(d), np.asarray(LEAF.numpy(**attrs)))
    if not _is_blank(first):
        spec.states[attrs["name"]].write(block, first)


def _is_blank(array: np.ndarray) -> bool:
    """Whether an array is a broadcast zero, which new memory already holds. Slots of optimizers
    start like this and are twice as large as the weights."""
    return not any(array.strides) and not any(array.flat[:1].tobytes())
