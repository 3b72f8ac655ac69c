"""Ops on complex tensors. Each is one call of a composition of real ops, whose operands and results
are the real and imaginary parts."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ztorch.arrays.applying import common_memory
from ztorch.arrays.calls import NUMBERS, Bound, Call, bind
from ztorch.arrays.complex_tensor import ComplexTensor, of_parts
from ztorch.arrays.elements import array_of, operand_of
from ztorch.arrays.exchange import as_host_array
from ztorch.arrays.node import TensorNode
from ztorch.arrays.recent import Recent
from ztorch.arrays.recording import record
from ztorch.arrays.specs import Spec
from ztorch.arrays.tensor import Tensor, compute, tensor_of
from ztorch.dtypes import DType, complex_dtype, f64, part_dtype
from ztorch.errors import ConfigError, Unsupported, ZtorchError
from ztorch.graph.op import ALIASES, OPS
from ztorch.graph.trees import LEAF, flatten, unflatten
from ztorch.graph.value import Value
from ztorch.locks import new_lock
from ztorch.ops.complex_values import ComplexOp, ComplexValue, complex_form

MOST_SQUARES = 64  # powers up to this integer exponent are products
_ONE = (ComplexTensor, 2, (LEAF, LEAF))  # the tree of a complex tensor
_APART = ("broadcast_arrays", "meshgrid")  # each result keeps the dtype of its operand


class CallOfParts(Call):
    """A call whose operands and results are real tensors and the parts of complex tensors.

    Attributes:
        tree: The structure of its results.
    """

    __slots__ = ("tree",)
    tree: Any


_recorded: Recent[tuple[Any, ...], CallOfParts] = Recent(1 << 12)  # by arguments as passed
# Weak, like the table of the other ops: a call lives as long as the nodes recorded with it.
_calls: weakref.WeakValueDictionary[tuple[Any, ...], CallOfParts] = weakref.WeakValueDictionary()
_lock = new_lock()


def on_complex(name: str, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """The results of an op with a complex argument: tensors, or NumPy arrays if no argument is a
    tensor.

    Args:
        name: The op.
        args: Its positional arguments.
        attrs: Its keyword arguments.

    Raises:
        Unsupported: The op has no complex form.
    """
    if name in ("power", "pow") and len(args) == 2 and type(args[1]) is int and (
            abs(args[1]) <= MOST_SQUARES):
        name = "integer_power"
    key, operands = _sorted(name, args, attrs)
    if key is not None:
        try:
            call = _recorded.get(key)
        except TypeError:  # a list is not hashable
            call = key = None
        if call is not None:
            nodes = record(call, tuple(operands))
            if call.tree is LEAF:
                return tensor_of(nodes[0])
            if call.tree == _ONE:
                return of_parts(*map(tensor_of, nodes))
            return unflatten(call.tree, map(tensor_of, nodes))
    if ALIASES.get(name, name) in _APART:
        return _apart(name, list(args[0] if len(args) == 1 and isinstance(args[0], (
            list, tuple)) else args), attrs)
    return _apply_first(name, args, attrs, key)


def _sorted(name: str, args: tuple[Any, ...], attrs: dict[str, Any]
            ) -> tuple[tuple[Any, ...] | None, list[Any]]:
    """The key of a call's plan, and its operands; None if the arguments must be bound again."""
    places = _places(name)
    key: list[Any] = [name]
    operands: list[Any] = []
    for k, x in enumerate(args):
        kind = type(x)
        if kind is ComplexTensor:
            real, imag = x.real.node, x.imag.node
            key += (ComplexTensor, real.spec, imag.spec)
            operands += (real, imag)
        elif kind is Tensor:
            key.append(x.node.spec)
            operands.append(x.node)
        elif k not in places:
            key.append((kind, x))
        elif kind is complex:
            key.append(kind)
            operands += (x.real, x.imag)
        elif kind is float or kind is int:
            key.append(float)
            operands.append(float(x))
        else:
            return None, operands
    for label, x in attrs.items():
        if isinstance(x, (Tensor, ComplexTensor)) or label in places:
            return None, operands
        key.append((label, type(x), x))
    return tuple(key), operands


@functools.cache
def _places(name: str) -> frozenset[int | str]:
    """The positions and names of the complex parameters."""
    form = complex_form(name)
    if form is None:
        return frozenset()
    return frozenset(p for k, label in enumerate(form.signature.parameters)
                     for p in (k, label) if label in form.complex)


# -- the first call of a kind ----------------------------------------------------------------------


def _apply_first(name: str, args: tuple[Any, ...], attrs: dict[str, Any],
                 key: tuple[Any, ...] | None) -> Any:
    form = complex_form(name)
    if form is None:
        raise Unsupported(f"zt.ops.{name} has no form for complex numbers ({_dtype_of(args)}, on "
                          "any backend); compute with .real, .imag or abs()")
    bound = bind(name, tuple(complex_dtype(x) or x for x in args),
                 {k: complex_dtype(x) or x for k, x in attrs.items()},
                 (form.signature, form.tensors))
    if any(isinstance(x, Value) for x in bound.operands):
        raise Unsupported(f"zt.ops.{name}: models compute with real numbers on every backend, and "
                          f"there is {_dtype_of(args)}; give them real and imaginary parts")
    kinds = [label in form.complex for label, count in bound.counts.items()
             for _ in range(1 if count is None else count)]
    parts: list[Any] = []  # of all operands
    labels: list[str] = []
    layout: list[int] = []  # number of parts of each operand; 0: it stays real
    for x, label, takes in zip(bound.operands, bound.labels, kinds, strict=True):
        own = _parts(f"zt.ops.{name}: {label}", x) if takes else (x,)
        layout.append(len(own) if takes else 0)
        parts += own
        labels += [label] * len(own)
    place = common_memory(f"zt.ops.{name}", labels, parts)
    later = any(isinstance(x, Tensor) for x in parts)
    weak = [takes for takes, count in zip(kinds, layout, strict=True) for _ in range(count or 1)]
    operands = [float(x) if w and _is_number(x) else
                operand_of(f"zt.ops.{name}: {label}", x, place, copy=later)
                for x, label, w in zip(parts, labels, weak, strict=True)]
    strong = [o.spec.dtype for o, w in zip(operands, weak, strict=True)
              if w and isinstance(o, TensorNode) and o.spec.kind is not float]
    part = part_dtype(*strong)
    if not any(d.is_float for d in strong) and (not strong or len(strong) < sum(weak)):
        part = f64
    dtypes = [part if w or not isinstance(o, TensorNode) else o.spec.dtype
              for o, w in zip(operands, weak, strict=True)]
    own_key = (name, place, tuple(layout), tuple(bound.counts.items()), repr(bound.attributes),
               tuple(o.spec if isinstance(o, TensorNode) else float for o in operands))
    call = _call(form, bound, own_key, layout, dtypes)
    if key is not None and later and operands == _sorted(name, args, attrs)[1]:
        _recorded.put(key, call)
    nodes = record(call, tuple(operands))
    finish = tensor_of if later or not bound.operands else array_of
    return unflatten(call.tree, map(finish, nodes))


def _dtype_of(args: Sequence[Any]) -> str:
    return next((str(x.dtype) for x in args if isinstance(x, ComplexTensor)), "complex128")


def _is_number(x: Any) -> bool:
    return isinstance(x, NUMBERS) and not isinstance(x, np.generic)


def _parts(label: str, x: Any) -> tuple[Any, ...]:
    """The real and the imaginary part of an argument, or the argument itself if it is real."""
    if isinstance(x, ComplexTensor):
        return x.real, x.imag
    if isinstance(x, Tensor) or _is_number(x):
        return (x,)
    if isinstance(x, complex) and not isinstance(x, np.generic):
        return x.real, x.imag
    array = as_host_array(label, x, complex_too=True)
    return (array.real, array.imag) if array.dtype.kind == "c" else (array,)


def _call(form: ComplexOp, bound: Bound, key: tuple[Any, ...], layout: Sequence[int],
          dtypes: Sequence[DType]) -> CallOfParts:
    """The unique call of a composition for operands with these shapes and dtypes."""
    call = _calls.get(key)
    if call is not None:
        return call
    bound = bound._replace(operands=[])  # a call outlives the tensors it was first made for
    trees: list[Any] = []

    def build(values: Sequence[Value]) -> list[Value]:
        arguments = _arranged(form, bound, layout, iter(values))
        leaves, tree = flatten(form.call(*arguments.args, **arguments.kwargs))
        trees[:] = [_of_tensors(tree)]
        return leaves

    operands: tuple[Spec | type, ...] = key[-1]
    try:
        call = CallOfParts(bound.name, operands, dtypes, build, key[1])
    except ZtorchError as error:
        shown = ", ".join(o.__name__ if isinstance(o, type) else repr(o) for o in operands)
        raise type(error)(f"{error}\n    in zt.ops.{bound.name}, of the parts {shown}") from None
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise ConfigError(f"zt.ops.{bound.name} cannot be called with these arguments on "
                          f"complex numbers ({type(error).__name__}: {error}); its signature is "
                          f"{bound.name}{form.signature}") from error
    call.tree = trees[0]
    with _lock:  # another thread may have added it meanwhile
        return _calls.setdefault(key, call)


def _arranged(form: ComplexOp, bound: Bound, layout: Sequence[int],
              values: Iterator[Value]) -> inspect.BoundArguments:
    """The arguments of a composition, in the order of its parameters."""
    def operand(count: int) -> Any:
        first = next(values)
        if not count:
            return first
        if count == 2:
            return ComplexValue(first, next(values))
        return ComplexValue(first, OPS.zeros_like(first))

    sizes = iter(layout)
    arguments: dict[str, Any] = {}
    for parameter in form.signature.parameters:
        if parameter in bound.attributes:
            arguments[parameter] = bound.attributes[parameter]
        elif parameter in bound.counts:
            count = bound.counts[parameter]
            arguments[parameter] = operand(next(sizes)) if count is None else tuple(
                operand(next(sizes)) for _ in range(count))
    return inspect.BoundArguments(form.signature, arguments)


# -- results ---------------------------------------------------------------------------------------


def _of_tensors(tree: Any) -> Any:
    """The structure of a tree, with complex tensors in place of complex values."""
    if not isinstance(tree, tuple):
        return tree
    kind, keys, parts = tree
    return ComplexTensor if kind is ComplexValue else kind, keys, tuple(map(_of_tensors, parts))


def _apart(name: str, xs: list[Any], attrs: dict[str, Any]) -> Any:
    """An op that moves each of several tensors separately, applied to real and imaginary parts."""
    real = compute(name, tuple(x.real for x in xs), attrs)
    imag = compute(name, tuple(x.imag for x in xs), attrs)
    return tuple(ComplexTensor(r, i) if isinstance(x, ComplexTensor) else r
                 for x, r, i in zip(xs, real, imag, strict=True))
