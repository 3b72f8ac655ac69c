"""Tensor operations, one file for each family; decorators register the functions.

Called on graph values, an op creates nodes. Called on arrays (NumPy arrays, or anything with
`__array__` or `__dlpack__`), numbers or lists, it computes and returns a NumPy array.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch import dispatch
from ztorch.arguments import need_no_mask
from ztorch.dtypes import DType
from ztorch.errors import nearest
from ztorch.graph.op import ALIASES, OPS, REGISTRY, Public, as_value, leaf
from ztorch.graph.operators import Operators
from ztorch.graph.value import Value, current_layer, stand_in
from ztorch.ops.absent import INSTEAD
from ztorch.ops.keras_arguments import ALWAYS, LOOKUPS, of_keras
from ztorch.ops.sizes import ndim as ndim
from ztorch.ops.sizes import shape as shape
from ztorch.ops.sizes import size as size

if TYPE_CHECKING:
    from ztorch.ops.control import checkpoint as checkpoint
    from ztorch.ops.control import cond as cond
    from ztorch.ops.control import scan as scan
    from ztorch.ops.control import while_loop as while_loop

Operators.instead = INSTEAD
# These take functions or return no tensors, so they are not registered ops.
_OF_LOOPS = ("checkpoint", "cond", "scan", "while_loop")  # their file loads on first use
_FUNCTIONS = (*_OF_LOOPS, "ndim", "shape", "size")
# These consist of tensors of numbers, which are above this room.
_OF_TENSORS = (
    "array", "associative_scan", "bincount", "complex", "convert_to_numpy", "convert_to_tensor",
    "copy", "dtype", "eig", "elastic_transform", "fori_loop", "is_tensor", "jvp", "map", "nonzero",
    "polar", "select", "switch", "unique", "vectorize", "vectorized_map", "view_as_complex",
    "view_as_real")
_OF_NUMPY = ("pi", "e", "inf", "nan", "newaxis", "float16", "float32", "float64", "int8", "int16",
             "int32", "int64", "uint8", "uint16", "uint32", "uint64")  # constants and dtypes
# Modules of NumPy that are ops here, and their functions.
_INSIDE = {"fft": ("fft", "fft2", "fftfreq", "fftshift", "ifft", "ifft2", "ifftshift", "irfft",
                   "rfft", "rfftfreq")}
_SAME = ("image", "linalg", "nn", "numpy")  # modules of Keras whose functions all exist here
__all__ = sorted((*REGISTRY, *_FUNCTIONS, *_OF_TENSORS))


class _UsedOps(types.ModuleType):
    """This module's class. It holds the ops used so far: in the module itself, names such as `any`
    would shadow Python's."""

    def __setattr__(self, name: str, value: Any) -> None:
        is_file = isinstance(value, types.ModuleType) and value.__name__ == f"{__name__}.{name}"
        if not (is_file and (name in REGISTRY or name in ALIASES or name in INSTEAD)):
            super().__setattr__(name, value)  # `ops.attention` is the op, not a file of this room


sys.modules[__name__].__class__ = _UsedOps


def __getattr__(name: str) -> Any:
    public_name = name
    if name in _OF_TENSORS:
        return dispatch.function_of_tensors(name)
    if name in _OF_LOOPS:
        return getattr(importlib.import_module("ztorch.ops.control"), name)
    if name in _OF_NUMPY:
        return getattr(np, name)
    if name in _SAME:
        return sys.modules[__name__]
    name = ALIASES.get(name, name)
    if name not in REGISTRY:
        hint = f"; {INSTEAD[name]}" if name in INSTEAD else ""
        if not hint and not name.startswith("_"):
            hint = nearest(name, (*REGISTRY, *ALIASES, *_OF_TENSORS), likeness=0.7)
        raise AttributeError(f"module 'ztorch.ops' has no attribute {name!r}{hint}")
    call = _public(name)
    setattr(_UsedOps, public_name, staticmethod(call))
    for inner in _INSIDE.get(public_name, ()):
        setattr(call, inner, _public(inner))
    return call


def __dir__() -> list[str]:
    return __all__


@functools.cache
def signature(name: str) -> tuple[inspect.Signature, frozenset[str]]:
    """The signature of an op, and the names of its tensor parameters, by their annotations.

    >>> sorted(signature("take")[1])
    ['indices', 'x']
    """
    parameters = inspect.signature(REGISTRY[name].call)
    return parameters, frozenset(
        p.name for p in parameters.parameters.values() if "Value" in str(p.annotation))


def _translated(name: str) -> Callable[..., Any] | None:
    """Turns the arguments of a method into those of the op of this name, where they differ."""
    name = ALIASES.get(name, name)
    return of_keras(name, signature(name)[0]) if name in LOOKUPS else None


Operators.translated = _translated


@functools.cache
def _public(name: str) -> Callable[..., Any]:
    """The op as users call it, on values or on arrays."""
    public, takes_tensors = REGISTRY[name], bool(signature(name)[1])
    parameters = signature(name)[0].parameters.values()
    joins = [p.name for p in parameters] == ["xs", "axis"]
    spelled = of_keras(name, signature(name)[0])
    quick: Callable[..., Any] | None = None

    @functools.wraps(public.call)
    def call(*args: Any, **attrs: Any) -> Any:
        if spelled is not None and (attrs or name in ALWAYS):
            args, attrs = spelled(args, attrs)
        if joins and len(args) == 2 and isinstance(args[1], int):
            xs, axis = args
            if isinstance(xs, (list, tuple)):
                args, attrs = (xs,), {"axis": axis, **attrs}
        nonlocal quick
        if quick is not None:
            result = quick(*args, **attrs)
            if result is not NotImplemented:
                return result
        result = dispatch.on_tensors(name, args, attrs)
        if result is not None:
            quick = quick or dispatch.recorder(name)
            return result
        variable = stand_in((*args, *attrs.values()))
        if variable is not None:
            return variable.apply_op(name, *args, **attrs)
        if not takes_tensors and current_layer():  # in a model, it is a graph value
            return getattr(OPS, name)(*args, **attrs)
        if _has_values((*args, *attrs.values())):
            args, attrs = _as_values(name, args, attrs)
            return getattr(OPS, name)(*args, **attrs)
        return dispatch.on_arrays(name, args, attrs)

    call.__doc__ = _with_example(public)
    call.op_name = name  # type: ignore[attr-defined]  # kernels know it by this
    return call


def _has_values(arguments: Iterable[Any]) -> bool:
    return next(_values(arguments), None) is not None


def _values(arguments: Iterable[Any]) -> Iterator[Value]:
    for x in arguments:
        if isinstance(x, Value):
            yield x
        elif isinstance(x, (list, tuple)):
            yield from _values(x)


def _as_values(name: str, args: tuple[Any, ...],
               attrs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, with arrays and lists for tensors converted to graph constants.

    Float arrays get the dtype of the values in the call. Parameters that accept numbers get them
    unchanged.
    """
    declared, tensors = signature(name)
    try:
        bound = declared.bind(*args, **attrs)
    except TypeError as error:
        raise TypeError(f"zt.ops.{name}: {error}; its signature is {name}{declared}") from None
    like = next((v for v in _values(bound.arguments.values()) if v.dtype.is_float), None)

    def tensor(x: Any, numbers: bool) -> Any:
        if x is None or isinstance(x, Value) or (numbers and isinstance(x, (bool, int, float))):
            return x
        if _has_values((x,)):
            return type(x)(tensor(y, numbers) for y in x)
        need_no_mask(f"zt.ops.{name}: an argument", x)
        array = np.asarray(x)
        return as_value(array, like if array.dtype.kind == "f" else None)

    for parameter, x in bound.arguments.items():
        if parameter in tensors:
            numbers = "float" in str(declared.parameters[parameter].annotation)
            many = declared.parameters[parameter].kind is inspect.Parameter.VAR_POSITIONAL
            bound.arguments[parameter] = (tuple(tensor(y, numbers) for y in x) if many else
                                          tensor(x, numbers))
    return bound.args, bound.kwargs


def _with_example(public: Public) -> str:
    """The docstring of an op. If it has no example, a call on the first sample is added."""
    doc = inspect.cleandoc(public.call.__doc__ or "")
    sample = next((s for s in public.samples if s.shapes and s.dtypes != "b"), None)
    if ">>>" in doc or sample is None or public.results:
        return doc
    kinds = ["b" if public.name == "where" and k == 0 else sample.dtypes[0]
             for k in range(len(sample.shapes))]
    args = ", ".join([*(_array_text(a, kind, sample.high)
                        for a, kind in zip(sample.shapes, kinds, strict=True)),
                      *(f"{k}={(v.long if isinstance(v, DType) else v)!r}"
                        for k, v in sample.attrs.items())])
    values = [leaf("input", "x", np.shape(a) if isinstance(a, np.ndarray) else a,
                   a.dtype if isinstance(a, np.ndarray) else _SHOWN[kind])
              for a, kind in zip(sample.shapes, kinds, strict=True)]
    result = public.call(*public.grouped(values), **sample.attrs)
    call = f"zt.ops.{public.name}({args})"
    return (f"{doc}\n\nExamples:\n    >>> import numpy as np, ztorch as zt\n"
            f"    >>> {call}.shape\n    {result.shape}")


_SHOWN = {"f": "float64", "s": "int64", "u": "uint32", "b": "bool"}  # dtypes of examples, by kind


def _array_text(a: Any, kind: str, high: float) -> str:
    if isinstance(a, np.ndarray):
        return f"np.array({a.tolist()})"
    number = {"f": high / 2, "b": True}.get(kind, int(high))
    return f"np.full({a}, {number}{', np.uint32' if kind == 'u' else ''})"
