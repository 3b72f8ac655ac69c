"""The capabilities of a device: its ops by dtype, and its limits. The compiler and
the driver are asked on request."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ztorch.dtypes import ALL, DType, boolean
from ztorch.dtypes import dtype as dtype_named
from ztorch.errors import Unsupported, ZtorchError, unknown
from ztorch.graph.op import REGISTRY, Public, Sample, leaf
from ztorch.graph.value import Graph, Value
from ztorch.library.buffers import Strided
from ztorch.library.programs import Trial
from ztorch.library.raw_device import KINDS, REDUCTIONS
from ztorch.library.routines import Routines


class Capabilities:
    """The capabilities of one device.

    Attributes:
        name: Name of the device.
        kind: "cpu", "gpu", "integrated" or "virtual".
        description: The device's own name, for people.
        memory_bytes: All its memory.
        limits: The limits that its driver reports: threads of a workgroup, bytes of shared memory
            and so on. Of the CPU, threads and the width of its vectors.
        languages: The languages that `load` takes.
    """

    def __init__(self, own: Routines, compiler: Trial, kind: str, description: str,
                 memory_bytes: int, limits: dict[str, int], languages: tuple[str, ...]):
        self.name = own.name
        self.kind = kind
        self.description = description
        self.memory_bytes = memory_bytes
        self.limits = limits
        self.languages = languages
        self._own = own
        self._compiler = compiler
        self._trial = Routines(own.options)  # its routines are compiled and not run
        self._trial.programs = compiler
        self._answers: dict[tuple[str, DType], str] = {}
        self._dtypes: dict[DType, str] = {}

    @property
    def routines(self) -> tuple[str, ...]:
        """The routines, by the names that `supports` takes besides those of ops."""
        return tuple(_ROUTINES)

    @property
    def ops(self) -> tuple[str, ...]:
        """The ops of zt.ops that `supports` takes."""
        return tuple(name for name, public in sorted(REGISTRY.items()) if public.samples)

    def supports(self, op: str, dtype: DType | str) -> bool:
        """Whether a routine, or an op of zt.ops, can be computed in a dtype.

        A small case is compiled at the first question, and one of the dtype run on the device.

        Args:
            op: Name of a routine, such as "gemm", or of an op, such as "exp".
            dtype: The dtype.

        Examples:
            >>> import ztorch as zt
            >>> zt.backends.get("cpu").capabilities().supports("gemm", "float64")
            True
        """
        return not self.why_not(op, dtype)

    def why_not(self, op: str, dtype: DType | str) -> str:
        """Why an op or routine cannot be computed in a dtype; empty if it can.

        Args:
            op: Name of a routine or of an op.
            dtype: The dtype.

        Examples:
            >>> import ztorch as zt
            >>> zt.backends.get("cpu").capabilities().why_not("softmax", "int32")
            'ztorch has no softmax of int32, on any device'
        """
        d = dtype_named(dtype)
        if op not in _ROUTINES and op not in self.ops:
            raise unknown("op or routine", op, _ROUTINES, also=self.ops)
        key = op, d
        if key not in self._answers:
            self._answers[key] = self._tried(op, d)
        return self._answers[key]

    def matrix(self, ops: Sequence[str] | None = None,
               dtypes: Sequence[DType | str] = ALL) -> dict[str, dict[str, bool]]:
        """The answers of `supports` for several ops, each in several dtypes.

        Args:
            ops: Names of routines and ops. `None` means all routines. Default: `None`.
            dtypes: The dtypes. Default: all.

        Examples:
            >>> import ztorch as zt
            >>> zt.backends.get("cpu").capabilities().matrix(["add", "exp"], ["float32", "int8"])
            {'add': {'float32': True, 'int8': True}, 'exp': {'float32': True, 'int8': False}}
        """
        return {op: {d.long: self.supports(op, d) for d in map(dtype_named, dtypes)}
                for op in (self.routines if ops is None else ops)}

    def _tried(self, op: str, d: DType) -> str:
        none = f"ztorch has no {op} of {d}, on any device"
        if op in _ROUTINES:
            if d.kind not in KINDS.get(op, "f"):
                return none
            return self._dtype(op, d) or _refusal(lambda: _ROUTINES[op](
                self._trial, functools.partial(_tensor, self._trial, d)))
        public = REGISTRY[op]
        why = none
        for graph in _graphs(public, [s for s in public.samples if d.kind in s.dtypes], d):
            why = self._dtype(op, d) or _refusal(
                functools.partial(self._compiler.compile, op, graph))
            if not why:
                break
        return why

    def _dtype(self, op: str, d: DType) -> str:
        """Why the device does not take a dtype; empty if it does, as a run on it shows."""
        if d not in self._dtypes:
            x, y = _tensor(self._own, d, 4), _tensor(self._own, d, 4)
            why = _refusal(lambda: self._own.unary("bitwise_not", x, y) if d is boolean else
                           self._own.binary("maximum", x, x, y))
            self._dtypes[d] = why.partition(": ")[2]
        why = self._dtypes[d]
        return why and f"backend {self.name} cannot do {op} of {d}: {why}"

    def __repr__(self) -> str:
        return f"<capabilities of {self.name}: {self.description}>"


def _refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except Unsupported as error:
        return str(error)
    return ""


def _graphs(public: Public, samples: Sequence[Sample], d: DType) -> Iterator[Graph]:
    """The graph of an op on each sample that it takes in a dtype."""
    for sample in samples:
        leaves = []
        for k, shape in enumerate(sample.shapes):
            array = isinstance(shape, np.ndarray)
            own = dtype_named(shape.dtype) if array and shape.dtype.kind != "f" else d
            own = boolean if public.name == "where" and k == 0 else own
            leaves.append(leaf("input", f"x{k}", np.shape(shape) if array else shape, own))
        try:
            result = public.call(*public.grouped(leaves), **sample.attrs)
        except ZtorchError:  # a rule of the op itself
            continue
        results = [result] if isinstance(result, Value) else list(result)
        yield Graph({f"y{k}": y for k, y in enumerate(results)})


def _tensor(own: Routines, d: DType, *shape: int, dtype: DType | str | None = None) -> Strided:
    kind = d if dtype is None else dtype_named(dtype)
    buffer = own.alloc(64 * kind.bytes)
    own.upload(buffer, np.zeros(64 * kind.bytes, np.uint8))
    return buffer.tensor(shape, kind)


def _reduction(op: str) -> Callable[[Routines, Any], None]:
    def call(own: Routines, t: Any) -> None:
        x = t(3, 4)
        result = "int32" if op.startswith("arg") else x.dtype
        own.reduce(op, x, t(3, dtype="float32" if op == "mean" and x.dtype.is_int else result))

    return call


# A small call of each routine, on tensors of the dtype that `t` makes.
_ROUTINES: dict[str, Callable[[Routines, Any], None]] = {
    "gemm": lambda own, t: own.gemm(2, 2, 2, *(t(4).part for _ in "abc"), dtype=t(1).dtype),
    "batched_gemm": lambda own, t: own.batched_gemm(2, 2, 2, 2, *(t(8).part for _ in "abc"),
                                                    dtype=t(1).dtype),
    "gemv": lambda own, t: own.gemv(2, 2, *(t(4).part for _ in "axy"), dtype=t(1).dtype),
    "conv2d_forward": lambda own, t: own.conv2d_forward(t(1, 4, 4, 2), t(3, 3, 2, 2),
                                                        t(1, 2, 2, 2)),
    "attention": lambda own, t: own.attention(*(t(1, 1, 2, 4) for _ in "qkvy")),
    "softmax": lambda own, t: own.softmax(t(2, 4), t(2, 4)),
    "batch_norm": lambda own, t: own.batch_norm(t(4, 2), t(4, 2), t(2), t(2), training=True),
    "fused_adam_step": lambda own, t: own.fused_adam_step(*([t(4)] for _ in "wgmv"), step=1),
    **{f"reduce {op}": _reduction(op) for op in REDUCTIONS},
}
