"""Tracks tensors that share memory, and what a write to one of them changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ztorch.errors import Unsupported
from ztorch.interchange.torch_export.archive import CallSpec, TensorType
from ztorch.interchange.torch_export.calls.movement import order_of
from ztorch.interchange.torch_export.calls.parts import parts_of, with_part
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
_IN_ORDER = {"contiguous", "reshape", "flatten", "ravel"}  # views if they can be, else copies
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


def write_target(spec: CallSpec) -> str | None:
    """The tensor that a call writes into, by its name: add_ writes, add does not."""
    name, argument = operator_of(spec), spec.inputs.get("self", {})
    writes = name.endswith("_") and name not in _SAME and not name.endswith("__")
    return argument["as_tensor"]["name"] if writes and "as_tensor" in argument else None


@dataclass(frozen=True)
class TensorView:
    """A view: a tensor in the memory of another."""

    base: str  # the other tensor, by its name in the program
    spec: CallSpec  # the call that returns it
    index: int  # which of its results it is


class SharedMemory:
    """Tracks which tensors share memory. A write updates all tensors in that memory, so that later
    calls read the new contents."""

    def __init__(self, calls: Iterable[CallSpec], types: Mapping[str, TensorType],
                 stored: Mapping[str, str]):
        self.types = types
        self.stored = stored  # names in the module of weights and buffers
        self.views: dict[str, TensorView] = {}
        for spec in calls:
            base = write_target(spec) or self._base_of(spec)
            if base is not None:
                results = OperatorCall(spec, Translation(types)).result_names
                self.views.update(
                    (name, TensorView(base, spec, k)) for k, name in enumerate(results))

    def root(self, name: str) -> str:
        """The tensor that owns the memory of a tensor."""
        while name in self.views:
            name = self.views[name].base
        return name

    def _base_of(self, spec: CallSpec) -> str | None:
        """The tensor whose memory the results of a call share; None if they are new."""
        op = operator_of(spec)
        argument = spec.inputs.get("self", spec.inputs.get("input", {}))
        if op not in _VIEWS or "as_tensor" not in argument:
            return None
        base: str = argument["as_tensor"]["name"]
        x = self.types.get(base)
        [result, *_] = OperatorCall(spec, Translation(self.types)).result_names
        y = self.types.get(result)
        if x is None or y is None:
            return base
        # Copies are in order, and views of what is not are not either.
        copies = (op in _IN_ORDER and not x.in_order and y.in_order) or (
            op in _CASTS and x.dtype is not y.dtype)
        return None if copies else base

    def write(self, spec: CallSpec, translation: Translation) -> None:
        """Adds the nodes of a call that writes, and updates all tensors in that memory."""
        name = write_target(spec)
        assert name is not None
        if operator_of(spec) in _RESHAPING:
            raise Unsupported("it changes the shape of a tensor in place; run_decompositions() of "
                              "the exported program replaces it")
        if self.root(name) in self.stored:
            raise Unsupported(f"it writes into {self.stored[self.root(name)]!r}, which would "
                              "change the next prediction; export module.eval()")
        plain = replace(spec, target=spec.target.replace("_.", ".", 1))
        if key_of(plain) not in CALLS:
            raise Unsupported("ztorch has no such operator")
        x = translation.tensor(name)
        call = OperatorCall(plain, translation)
        result = CALLS[key_of(plain)](call)
        y = result if isinstance(result, str) else result[0]
        dtypes = {v.dtype for v in map(call.get, spec.inputs) if isinstance(v, CallTensor)}
        if dtypes != {x.dtype}:
            y = call.node("Cast", y, to=x.dtype.onnx)
        self._store(name, y, translation)

    def _store(self, name: str, y: str, translation: Translation) -> None:
        """Sets a tensor to y, and updates all tensors in its memory."""
        tensors = translation.tensors

        def set_tensor(at: str, value: str) -> None:
            kind = self.types[at] if at in self.types else tensors[at]
            tensors[at] = CallTensor(value, kind.dtype, kind.dims)
            updated.add(at)

        updated: set[str] = set()
        set_tensor(name, y)
        while name in self.views:
            view = self.views[name]
            set_tensor(view.base, self._updated_base(view, tensors[name], translation))
            name = view.base
        for label, view in self.views.items():  # bases before their views
            if label not in updated and view.base in updated and label in tensors:
                base = tensors[view.base]
                if write_target(view.spec):
                    set_tensor(label, base.name)
                    continue
                result = CALLS[key_of(view.spec)](OperatorCall(view.spec, translation))
                set_tensor(label, result if isinstance(result, str) else result[view.index])

    def _updated_base(self, view: TensorView, y: CallTensor, translation: Translation) -> str:
        """The base of a view after y was written to the view."""
        call, op = OperatorCall(view.spec, translation), operator_of(view.spec)
        base = translation.tensor(view.base)
        if write_target(view.spec) or op in _SAME | _CASTS or op == "contiguous":
            return y.name
        if op in _SHAPES | _IN_ORDER:
            return call.node("Reshape", y.name, call.node("Shape", base.name))
        if op in _ORDERS:
            return call.node("Transpose", y.name, perm=np.argsort(order_of(call)).tolist())
        if op in _REGIONS:
            return with_part(call, base, y.name, parts_of(call)[view.index])
        raise Unsupported(f"it writes into a result of {op}; run_decompositions() of the exported "
                          "program replaces it")
