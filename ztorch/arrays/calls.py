"""Calls of ops on tensors, checked and typed once for each combination of shapes and dtypes.

A `Call` is an op with its attributes, for operands of certain shapes and dtypes. Equal calls are
one object, so recorded computations are compared by the identity of their calls.
"""

from __future__ import annotations

import functools
import inspect
import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ztorch.arguments import written
from ztorch.arrays.device_dtypes import dtypes_on, need_dtypes_of
from ztorch.arrays.promotion import integer_range, name_for, need_in_range, operand_dtypes
from ztorch.arrays.specs import Spec, spec
from ztorch.dtypes import AnyDType, DType, dtype
from ztorch.errors import ConfigError, DataError, UnknownName, ZtorchError
from ztorch.graph.op import ALIASES, OPS, REGISTRY, Public, is_pair, leaf
from ztorch.graph.tracing import NotTraced
from ztorch.graph.value import Value
from ztorch.locks import new_lock
from ztorch.ops import signature
from ztorch.ops.absent import ARGUMENTS

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge, "equal": operator.eq, "not_equal": operator.ne}
NUMBERS = (bool, int, float)  # Python's: as operands they take the dtype of the tensor operands

Operand = Spec | type  # a tensor, or the type of a number
Build = Callable[[Sequence[Value]], Any]  # values of the operands -> the values of the results


class Call:
    """An op for operands of certain shapes and dtypes.

    Attributes:
        name: Name of the op.
        operands: Spec of each tensor operand, type of each number.
        dtypes: The dtype that each operand is computed in.
        results: Spec of each result.
        result: The first of these specs.
        aliases: For each result, the index of an operand that it equals (a no-op), or None.
        single: Whether the op returns one result rather than a tuple.
        integers: Positions and ranges of the numbers that must fit an integer dtype.
        quick: Whether recording only needs to create nodes: there is nothing to check.
        reshapes: Whether the result is a reshape of the only operand.
        natives: Native functions for nodes whose last call this is; `programs.py` adds them.
    """

    __slots__ = ("__weakref__", "_build", "aliases", "dtypes", "integers", "name", "natives",
                 "operands", "quick", "reshapes", "result", "results", "single")

    def __init__(self, name: str, operands: tuple[Operand, ...], dtypes: Sequence[DType],
                 build: Build, memory: str):
        self.name = name
        self.natives: dict[Any, list[Callable[..., Any]]] = {}
        self.operands = operands
        self.dtypes = tuple(dtypes)
        self._build = build
        inputs = [leaf("input", f"x{k}", o.shape if isinstance(o, Spec) else (), d)
                  for k, (o, d) in enumerate(zip(operands, dtypes, strict=True))]
        result = build(inputs)
        self.single = isinstance(result, Value)
        results = [result] if self.single else result
        if not isinstance(results, (list, tuple)) or not results or not all(
                isinstance(y, Value) for y in results):
            raise NotTraced(f"{name} must give a tensor or a tuple of tensors, not {result!r}")
        need_dtypes_of(memory, results, name)
        self.results = tuple(spec(y.shape, y.dtype, memory) for y in results)
        self.result = self.results[0]
        same = {id(v): k for k, (v, o) in enumerate(zip(inputs, operands, strict=True))
                if isinstance(o, Spec) and o.dtype is v.dtype}
        self.aliases = tuple(same.get(id(y)) for y in results)
        self.integers = tuple((k, *integer_range(d)) for k, (o, d) in enumerate(
            zip(operands, dtypes, strict=True)) if not isinstance(o, Spec) and d.is_int)
        self.quick = not (any(a is not None for a in self.aliases) or self.integers)
        self.reshapes = self.quick and self.single and len(inputs) == 1 and (
            results[0].op.name == "reshape" and id(results[0].args[0]) in same)

    def build(self, operands: Sequence[Value]) -> list[Value]:
        """The results as values of a graph."""
        typed = [v if v.dtype is d else OPS.cast(v, d)
                 for v, d in zip(operands, self.dtypes, strict=True)]
        result = self._build(typed)
        return [result] if self.single else list(result)

    def fitting(self, operands: tuple[Any, ...]) -> tuple[Call, tuple[Any, ...]]:
        """The call and operands to record for these operands. They differ only for a comparison
        with a number that the integer dtype cannot hold: its result is constant.

        Raises:
            DataError: An op other than a comparison has such a number.
        """
        for k, low, high in self.integers:
            if not low <= operands[k] <= high:
                tensors = [o for o in self.operands if isinstance(o, Spec)]
                if self.name not in COMPARISONS or len(tensors) != 1:
                    need_in_range(self.name, operands[k], self.dtypes[k])
                pair = (operands[k], low) if k == 0 else (low, operands[k])
                answer = COMPARISONS[self.name](*pair)
                return _known_comparison(self.results[0], tensors[0], answer), operands[1 - k:2 - k]
        return self, operands

    def __repr__(self) -> str:
        return f"<call of {self.name}>"


@functools.lru_cache(1024)
def _known_comparison(result: Spec, operand: Spec, answer: bool) -> Call:
    """The call for a comparison with a constant result, whatever the tensor holds."""
    return Call("full", (operand,), (operand.dtype,),
                lambda values: OPS.full(result.shape, answer, result.dtype), result.memory)


class TensorPlaces(NamedTuple):
    """The tensor parameters of an op."""

    positions: frozenset[int]  # positional arguments that are tensors
    rest: int  # all positional arguments from this index on are tensors
    names: frozenset[str]  # parameters that are tensors


@functools.cache
def tensor_places(name: str) -> TensorPlaces:
    """The tensor parameters of the op of this name."""
    declared, tensors = signature(ALIASES.get(name, name))
    positions, rest = set(), 1 << 30
    for k, p in enumerate(declared.parameters.values()):
        if p.kind is inspect.Parameter.VAR_POSITIONAL and p.name in tensors:
            rest = k
        elif p.name in tensors:
            positions.add(k)
    return TensorPlaces(frozenset(positions), rest, tensors)


class Bound(NamedTuple):
    """The arguments of an op, bound to its signature."""

    name: str  # the op's name
    operands: list[Any]  # tensor arguments as the user passed them
    labels: list[str]  # the name of each operand in errors
    counts: dict[str, int | None]  # number of operands of each tensor parameter; None: a single one
    attributes: dict[str, Any]  # the other arguments

    def takes_numbers(self) -> list[bool]:
        """For each operand, whether a number takes the dtype of the tensor operands. An index does
        not."""
        declared, _ = signature(self.name)
        return ["float" in str(declared.parameters[parameter].annotation)
                for parameter, count in self.counts.items()
                for _ in range(1 if count is None else count)]


def bind(name: str, args: tuple[Any, ...], attrs: dict[str, Any],
         form: tuple[inspect.Signature, frozenset[str]] | None = None) -> Bound:
    """Binds the arguments of an op, or of another form of it, to tensors and attributes.

    Raises:
        TypeError: The arguments do not fit the op's signature.
        DataError: A required tensor is None.
        ConfigError: An attribute is not a plain value.
    """
    declared, tensors = form or signature(name)
    try:
        arguments = declared.bind(*args, **attrs).arguments
    except TypeError as error:
        hints = (f"{k} is {ARGUMENTS.get(k)} here; " for k in {*attrs} - {*declared.parameters}
                 if ARGUMENTS.get(k) in declared.parameters)
        raise TypeError(f"zt.ops.{name}: {error}; {''.join(hints)}its signature is "
                        f"{name}{written(declared)}") from None
    operands: list[Any] = []
    labels: list[str] = []
    counts: dict[str, int | None] = {}
    attributes: dict[str, Any] = {}
    for parameter, x in arguments.items():
        p = declared.parameters[parameter]
        if x is None and parameter in tensors and p.default is not None:
            raise DataError(f"zt.ops.{name}: {parameter} is None; give an array or a number")
        if p.kind is inspect.Parameter.VAR_KEYWORD:
            attributes[parameter] = {k: as_attribute(f"zt.ops.{name}({k}=...)", x[k]) for k in x}
        elif parameter not in tensors or x is None:
            attributes[parameter] = as_attribute(f"zt.ops.{name}({parameter}=...)", x)
        elif is_pair(p) and not (isinstance(x, (list, tuple)) and len(x) == 2):
            raise DataError(f"zt.ops.{name}: {parameter} is a pair of arrays (real, imag), or "
                            f"complex, not {type(x).__name__}; a real array x is the pair "
                            "(x, zt.zeros_like(x))")
        elif p.kind is inspect.Parameter.VAR_POSITIONAL or is_pair(p):
            items = x[0] if len(x) == 1 and isinstance(x[0], (list, tuple)) else x
            counts[parameter] = len(items)
            operands += items
            labels += [f"{parameter}[{k}]" for k in range(len(items))]
        else:
            counts[parameter] = None
            operands.append(x)
            labels.append(parameter)
    return Bound(name, operands, labels, counts, attributes)


# Weak: a call lives as long as a recorded node or a compiled program refers to it.
_calls: weakref.WeakValueDictionary[tuple[Any, ...], Call] = weakref.WeakValueDictionary()
_lock = new_lock()  # held while a call is added


def _only(key: tuple[Any, ...], call: Call) -> Call:
    with _lock:  # another thread may have added it meanwhile
        return _calls.setdefault(key, call)


def call_for(bound: Bound, operands: tuple[Operand, ...], memory: str) -> Call:
    """The unique Call of an op for these operands.

    Raises:
        ZtorchError: The op does not take such shapes or dtypes.
    """
    key = (bound.name, memory, operands, tuple(bound.counts.items()), repr(bound.attributes))
    call = _calls.get(key)
    if call is None:
        kinds = [o.kind if isinstance(o, Spec) else o for o in operands]
        public = REGISTRY[name_for(bound.name, kinds)]
        try:
            dtypes = dtypes_on(memory, kinds, operand_dtypes(public, kinds))
            call = Call(bound.name, operands, dtypes, _builder(public, bound), memory)
        except ZtorchError as error:
            raise type(error)(f"{error}\n    in {_shown(bound, operands)}") from None
        call = _only(key, call)
    return call


def one_call(key: tuple[Any, ...], name: str, operands: tuple[Spec, ...], build: Build) -> Call:
    """The unique Call of a function of tensors in one memory, each in its own dtype.

    Args:
        key: Identifies the function.
        name: The name of its programs.
        operands: The tensors.
        build: The function, which takes and returns graph values.
    """
    stored = _calls.get((key, operands))
    if stored is None:
        call = Call(name, operands, [o.dtype for o in operands], build, operands[0].memory)
        stored = _only((key, operands), call)
    return stored


def _builder(public: Public, bound: Bound) -> Build:
    """A function that calls an op on values, with its attributes."""
    declared, _ = signature(public.name)
    counts, attributes = bound.counts, bound.attributes

    def build(values: Sequence[Value]) -> Any:
        remaining: Iterator[Value] = iter(values)
        arguments: dict[str, Any] = {}
        for parameter in declared.parameters:  # BoundArguments needs this order
            if parameter in attributes:
                arguments[parameter] = attributes[parameter]
            elif parameter in counts:
                n = counts[parameter]
                arguments[parameter] = next(remaining) if n is None else (
                    *(next(remaining) for _ in range(n)),)
        call = inspect.BoundArguments(declared, arguments)
        try:
            return getattr(OPS, public.name)(*call.args, **call.kwargs)
        except ZtorchError:
            raise
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise ConfigError(f"zt.ops.{public.name} cannot be called with these arguments "
                              f"({type(error).__name__}: {error}); its signature is "
                              f"{public.name}{written(declared)}") from error

    return build


def _shown(bound: Bound, operands: Sequence[Operand]) -> str:
    shown = [*(repr(o) if isinstance(o, Spec) else o.__name__ for o in operands),
             *(f"{k}={v!r}" for k, v in bound.attributes.items())]
    return f"zt.ops.{bound.name}({', '.join(shown)})"


def as_attribute(label: str, x: Any) -> Any:
    """A non-tensor argument as plain Python values, which can be part of a key."""
    x = x.tolist() if isinstance(x, (np.generic, np.ndarray)) else x
    if isinstance(x, (list, tuple)):
        return tuple(as_attribute(label, item) for item in x)
    if isinstance(x, slice):
        return slice(*(as_attribute(label, bound) for bound in (x.start, x.stop, x.step)))
    if x is None or x is Ellipsis or isinstance(x, (int, float, complex, str, AnyDType)):
        return x
    try:
        return dtype(x)  # np.float32 and similar
    except UnknownName:
        shown = "a tensor; its number is x.item()" if hasattr(x, "realize") else repr(x)
        raise ConfigError(f"{label} takes plain values, not {shown}") from None
