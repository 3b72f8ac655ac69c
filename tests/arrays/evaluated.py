"""Programs of arrays that NumPy evaluates: for tests of results, not of compiled code.

Compiling a structure takes 50 ms, evaluating it less than one.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ztorch.arrays import programs
from ztorch.dtypes import from_storage, to_storage
from ztorch.graph.evaluate import evaluate
from ztorch.graph.value import Graph, Value


def build(functions: Mapping[str, Graph], device: str, name: str) -> Any:
    """The result of `ztorch.compile.pipeline.build`, as far as programs of arrays use it."""
    [graph] = functions.values()
    inputs = graph.leaves("input")
    ports = {v.attrs["name"]: v for v in inputs}

    def call(addresses: Sequence[int], results: Sequence[int]) -> None:
        feeds = {v: from_storage(v.dtype, _at(a, v)).copy()
                 for v, a in zip(inputs, addresses, strict=True)}
        for v, array, address in zip(graph.roots, evaluate(graph.roots, feeds), results,
                                     strict=True):
            _at(address, v)[...] = to_storage(v.dtype, array)

    return SimpleNamespace(functions={"call": SimpleNamespace(inputs=ports)},
                           spec=SimpleNamespace(memory_bytes=0),
                           bind_memory=lambda _: SimpleNamespace(unlocked=lambda: call))


@contextlib.contextmanager
def by_numpy() -> Iterator[None]:
    """NumPy evaluates all programs of a block; nothing is compiled."""
    programs.forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "build", build)
        yield
    programs.forget()


def _at(address: int, v: Value) -> np.ndarray:
    """The array of a value's shape and dtype at an address."""
    raw = (ctypes.c_uint8 * (v.size * v.dtype.bytes)).from_address(address)
    return np.frombuffer(raw, v.dtype.numpy).reshape(v.shape)
