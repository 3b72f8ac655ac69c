"""The contract of a compiled executable, implemented in NumPy: the training loop is tested on it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.compile.traced_model import TracedModel
from ztorch.dtypes import DType
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import first_value
from ztorch.graph.value import Graph
from ztorch.program.program import Program
from ztorch.runtime.spec import ProgramSpec, StateSpec


@dataclass(frozen=True)
class Spec:
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class Signature:
    inputs: dict[str, Spec]
    outputs: dict[str, Spec]


class NumpyExecutable:
    """Functions sharing states, run by the meaning of their ops."""

    device = "numpy"
    code = b""
    own_kernels = None  # it calls no library

    def __init__(self, traced: TracedModel):
        self.name = traced.metadata.name
        self._graphs = traced.functions
        self.lock = threading.Lock()
        self.functions = {name: Signature(
            {v.attrs["name"]: Spec(v.shape, v.dtype) for v in g.leaves("input")},
            {n: Spec(v.shape, v.dtype) for n, v in g.outputs.items()})
            for name, g in traced.functions.items()}
        leaves = {v.attrs["name"]: v for g in traced.functions.values() for v in g.leaves("state")}
        order = [w.name for w in traced.metadata.weights]
        order += [n for n in leaves if n not in order]
        self.states, offset = {}, 0
        for n in order:
            v = leaves[n]
            self.states[n] = StateSpec(n, v.shape, v.dtype, offset, v.attrs["kind"],
                                       v.attrs["trainable"])
            offset += -(-self.states[n].nbytes // 64) * 64
        self.spec = ProgramSpec(self.name, "numpy", "", (), {}, self.states, offset, 0, ())
        self._values = {n: np.array(first_value(leaves[n]), leaves[n].dtype.numpy) for n in order}

    @property
    def params(self) -> np.ndarray:
        block = np.zeros(self.spec.params_bytes, np.uint8)
        for n, s in self.states.items():
            block[s.offset:s.offset + s.nbytes] = self._values[n].reshape(-1).view(np.uint8)
        return block

    def bind(self, function: str) -> NumpyCall:
        return NumpyCall(self, function, self._graphs[function])

    def keep(self, columns: object) -> None:
        """The arrays of a data set stay where they are."""

    def state(self, name: str) -> np.ndarray:
        with self.lock:
            return self._values[name].copy()

    def set_state(self, name: str, array: np.ndarray) -> None:
        spec = self.states[name]
        assert array.shape == spec.shape and array.dtype == spec.dtype.numpy
        with self.lock:
            self._values[name] = array.copy()

    def states_snapshot(self) -> dict[str, np.ndarray]:
        return {n: self.state(n) for n in self.states}

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        for name, array in snapshot.items():
            self.set_state(name, array)

    def close(self) -> None:
        self._values.clear()


class CopyingCall:
    """It reads and writes only its own buffers, one run at a time, as the contract of calls allows."""

    overlaps = False

    def read_from(self, name: str, array: np.ndarray) -> bool:
        return False

    def write_to(self, name: str, array: np.ndarray) -> bool:
        return False

    def release(self) -> None:
        pass

    def steps(self, columns: object, kept: object = None) -> None:
        """Each batch is a run of its own."""


class NumpyCall(CopyingCall):
    """One function's staging buffers and its step."""

    def __init__(self, executable: NumpyExecutable, function: str, graph: Graph):
        signature = executable.functions[function]
        self.inputs = {n: np.zeros(s.shape, s.dtype.numpy) for n, s in signature.inputs.items()}
        self.outputs = {n: np.zeros(s.shape, s.dtype.numpy) for n, s in signature.outputs.items()}
        self.program, self._graph = executable, graph

    def __call__(self) -> None:
        e, g = self.program, self._graph
        with e.lock:
            feeds: dict[Any, Any] = {v: self.inputs[v.attrs["name"]] for v in g.leaves("input")}
            feeds |= {v: e._values[v.attrs["name"]] for v in g.leaves("state")}
            roots = evaluate(g.roots, feeds)
            for output, value in zip(self.outputs.values(), roots, strict=False):
                output[...] = value
            for name, value in zip(g.updates, roots[len(g.outputs):], strict=True):
                e._values[name] = np.array(value, e.states[name].dtype.numpy)


class NullCall(CopyingCall):
    """A step that takes no time, to measure the loop itself."""

    def __init__(self, call: NumpyCall):
        self.inputs, self.outputs, self.program = call.inputs, call.outputs, call.program

    def __call__(self) -> None:
        pass


def compile_numpy(model: Any, batch_size: int = 16, optimizer: Any = None, loss: Any = None,
                  metrics: Iterable[Any] = (), seed: int | None = None,
                  loss_weights: Any = None) -> Program:
    """The result of model.compile, on the NumPy executable."""
    from ztorch.model.trace import trace

    traced = trace(model, batch_size, optimizer, loss, metrics, seed=seed, loss_weights=loss_weights)
    return Program(NumpyExecutable(traced), traced.metadata)  # type: ignore[arg-type]
