"""Tensors of a program that share memory, and the effects of a write to one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ztorch.errors import Unsupported
from ztorch.interchange.torch_export.archive import CallSpec, TensorType
from ztorch.interchange.torch_export.calls.movement import order_of
from ztorch.interchange.torch_export.calls.parts import placed, regions_of
from ztorch.interchange.torch_export.translation import (
    CALLS,
    CallTensor,
    OperatorCall,
    Translation,
    key_of,
)

_SAME = {"alias", "detach", "detach_", "lift_fresh", *(
    f"{op}{end}" for op in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
    for end in ("", "_"))}
_IN_ORDER = {"contiguous", "reshape", "flatten", "ravel"}  # of elements in order: else perhaps not
_SHAPES = {"view", "unflatten", "squeeze", "unsqueeze", "atleast_1d", "atleast_2d", "atleast_3d"}
_ORDERS = {"permute", "transpose", "t", "mT", "mH", "numpy_T", "swapaxes", "swapdims",
           "adjoint"}
_REGIONS = {"slice", "select", "narrow", "split", "split_with_sizes", "chunk", "unbind",
            "tensor_split", "hsplit", "vsplit", "dsplit"}
_SPREAD = {"expand", "expand_as", "diagonal"}
_CASTS = {"to", "type_as"}
_VIEWS = _SAME | _IN_ORDER | _SHAPES | _ORDERS | _REGIONS | _SPREAD | _CASTS
_RESHAPING = {"squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_", "resize_", "set_"}


def operator_of(spec: CallSpec) -> str:
    """The name of a call's operator without its overload, such as relu."""
    return key_of(spec).split(".")[1] if "." in key_of(spec) else key_of(spec)


def written_by(spec: CallSpec) -> str | None:
    """The tensor that a call writes into, by the rule of names: add_ writes, add does not."""
    name, said = operator_of(spec), spec.inputs.get("self", {})
    writes = name.endswith("_") and name not in _SAME and not name.endswith("__")
    return said["as_tensor"]["name"] if writes and "as_tensor" in said else None


@dataclass(frozen=True)
class InMemoryOf:
    """A tensor in the memory of another."""

    base: str  # the other, by its name in the program
    spec: CallSpec  # the call that gave it
    index: int  # which of its results it is


class SharedMemory:
    """Tracks which tensors share memory. After a write, the tensors of a Translation stand for the
    new contents of the memory, so that later calls read them."""

    def __init__(self, calls: Iterable[CallSpec], types: Mapping[str, TensorType],
                 stored: Mapping[str, str]):
        self.types = types
        self.stored = stored  # names in the module of weights and buffers
        self.views: dict[str, InMemoryOf] = {}
        for spec in calls:
            base = written_by(spec) or self._seen(spec)
            if base is not None:
                results = OperatorCall(spec, Translation(types)).result_names
                self.views.update(
                    (name, InMemoryOf(base, spec, k)) for k, name in enumerate(results))

    def root(self, name: str) -> str:
        """The tensor that a tensor's memory was made for."""
        while name in self.views:
            name = self.views[name].base
        return name

    def _seen(self, spec: CallSpec) -> str | None:
        """The tensor that owns the memory of the results."""
        op = operator_of(spec)
        said = spec.inputs.get("self", spec.inputs.get("input", {}))
        if op not in _VIEWS or "as_tensor" not in said:
            return None
        base: str = said["as_tensor"]["name"]
        x = self.types.get(base)
        [result, *_] = OperatorCall(spec, Translation(self.types)).result_names
        y = self.types.get(result)
        copies = (op == "contiguous" and x is not None and not x.in_order) or (
            op in _CASTS and x is not None and y is not None and x.dtype is not y.dtype)
        return None if copies else base

    def write(self, spec: CallSpec, translation: Translation) -> None:
        """Adds the nodes of a call that writes, and of all tensors in the memory it writes to."""
        name = written_by(spec)
        assert name is not None
        if operator_of(spec) in _RESHAPING:
            raise Unsupported("it changes the shape of a tensor in place; run_decompositions() of "
                              "the exported program makes it of other operators")
        if self.root(name) in self.stored:
            raise Unsupported(f"it writes into {self.stored[self.root(name)]!r}, so that the next "
                              "prediction would be another")
        plain = replace(spec, target=spec.target.replace("_.", ".", 1))
        if key_of(plain) not in CALLS:
            raise Unsupported("ztorch translates no such operator")
        x = translation.tensor(name)
        call = OperatorCall(plain, translation)
        result = CALLS[key_of(plain)](call)
        y = result if isinstance(result, str) else result[0]
        others = {v.dtype for v in map(call.get, spec.inputs) if isinstance(v, CallTensor)}
        if others != {x.dtype}:
            y = call.node("Cast", y, to=x.dtype.onnx)
        self._store(name, y, translation)

    def _store(self, name: str, y: str, translation: Translation) -> None:
        """Gives a tensor and all in its memory their new elements."""
        tensors = translation.tensors

        def put(at: str, value: str) -> None:
            kind = self.types[at] if at in self.types else tensors[at]
            tensors[at] = CallTensor(value, kind.dtype, kind.dims)
            done.add(at)

        done: set[str] = set()
        put(name, y)
        while name in self.views:
            view = self.views[name]
            put(view.base, self._written(view, tensors[name], translation))
            name = view.base
        for other, view in self.views.items():  # bases before their views
            if other not in done and view.base in done and other in tensors:
                base = tensors[view.base]
                if written_by(view.spec):
                    put(other, base.name)
                    continue
                result = CALLS[key_of(view.spec)](OperatorCall(view.spec, translation))
                put(other, result if isinstance(result, str) else result[view.index])

    def _written(self, view: InMemoryOf, y: CallTensor, translation: Translation) -> str:
        """The base of a view whose elements are those of `y` now."""
        call, op = OperatorCall(view.spec, translation), operator_of(view.spec)
        base = translation.tensor(view.base)
        if written_by(view.spec) or op in _SAME | _CASTS or op == "contiguous":
            return y.name
        kind = self.types.get(view.base)
        if op in _SHAPES or (op in _IN_ORDER and kind is not None and kind.in_order):
            return call.node("Reshape", y.name, call.node("Shape", base.name))
        if op in _ORDERS:
            return call.node("Transpose", y.name, perm=np.argsort(order_of(call)).tolist())
        if op in _REGIONS:
            return placed(call, base, y.name, regions_of(call)[view.index])
        raise Unsupported(f"it writes into a result of {op}; run_decompositions() of the exported "
                          "program makes it of other operators")
