"""Ops on arrays: each call is compiled once for its shapes and dtypes, and the program is kept.

A call becomes a graph of one op, and the graph becomes a program, as for any model. When too many
programs are kept, the least recently used go first. Several threads may call at once.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ztorch.compile.operands import ArrayArgument, as_argument, as_attribute, dtype_of, with_dtypes
from ztorch.compile.pipeline import build
from ztorch.dtypes import DType, bf16
from ztorch.errors import ConfigError, DataError, Unsupported, ZtorchError
from ztorch.graph.op import NotTraced, Public, leaf, traced
from ztorch.graph.value import Graph, Value
from ztorch.ops import signature

CAPACITY = 256  # programs that are kept at most
CAPACITY_BYTES = 1 << 28  # memory of all kept programs; the newest is kept whatever it takes

Make = Callable[[Sequence[Value]], Any]  # the inputs of a graph -> its results
Typed = Sequence[tuple[ArrayArgument, DType]]

_device: ContextVar[str] = ContextVar("device", default="cpu")


@contextmanager
def on(device: str) -> Iterator[None]:
    """Runs ops on arrays on a device, inside a `with` block.

    Args:
        device: The device, such as "cpu:scalar" or "cuda:0".

    Examples:
        >>> import ztorch as zt
        >>> with on("cpu:scalar"):
        ...     zt.ops.add(np.array([1.0, 2.0]), 1)
        array([2., 3.])
    """
    token = _device.set(device)
    try:
        yield
    finally:
        _device.reset(token)


def compute(public: Public, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    """What an op gives for arrays, numbers and lists: a NumPy array, or a tuple of them.

    Numbers mix with arrays as in NumPy: they take the dtype of the arrays, unless it cannot hold
    their kind. Elementwise ops find a common dtype for arrays as NumPy does. Other ops do so only
    for floats: indices keep their dtype.
    """
    name = f"zt.ops.{public.name}"
    op_signature, tensor_parameters = signature(public.name)
    try:
        bound = op_signature.bind(*args, **attrs)
    except TypeError as error:
        raise TypeError(f"{name}: {error}; it is {public.name}{op_signature}") from None
    operands: list[ArrayArgument] = []
    counts: dict[str, int | None] = {}  # tensors of each tensor parameter; None: a single one
    attributes: dict[str, Any] = {}
    for parameter, x in bound.arguments.items():
        declared = op_signature.parameters[parameter]
        if x is None and parameter in tensor_parameters and declared.default is not None:
            raise DataError(f"{name}: {parameter} is None; give an array or a number")
        if parameter not in tensor_parameters or x is None:
            attributes[parameter] = as_attribute(f"{name}({parameter}=...)", x)
            continue
        number_allowed = "float" in str(declared.annotation)
        if declared.kind is inspect.Parameter.VAR_POSITIONAL:
            items = x[0] if len(x) == 1 and isinstance(x[0], (list, tuple)) else x
            counts[parameter] = len(items)
            labels = [f"{parameter}[{k}]" for k in range(len(items))]
        else:
            items, labels, counts[parameter] = [x], [parameter], None
        operands += [as_argument(name, label, item, number_allowed or isinstance(item, float))
                     for label, item in zip(labels, items, strict=True)]

    def make(inputs: Sequence[Value]) -> Any:
        remaining, positional, named = iter(inputs), [], dict(attributes)
        for parameter, count in counts.items():
            if count is not None:
                positional += [next(remaining) for _ in range(count)]
            elif (op_signature.parameters[parameter].kind
                    is inspect.Parameter.POSITIONAL_ONLY):
                positional.append(next(remaining))
            else:
                named[parameter] = next(remaining)
        try:
            return public.call(*positional, **named)
        except ZtorchError:
            raise
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise ConfigError(f"{name} cannot be called like this ({type(error).__name__}: "
                              f"{error}); it is {public.name}{op_signature}") from error

    key = (public.name, tuple(counts.items()), repr(attributes))
    return _run(key, name, attributes, with_dtypes(public, operands), make)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of arrays one native call: a decorator.

    The function is called once for each set of shapes and dtypes, with values of a graph. What it
    does with them is compiled, and runs from then on.

    Args:
        function: Takes tensors, uses `zt.ops` and operators on them, and returns a tensor or a
            tuple of tensors.

    Returns:
        A function that takes and returns NumPy arrays.

    Raises:
        ConfigError: `function` is not callable.

    Examples:
        >>> import ztorch as zt
        >>> @zt.compiled
        ... def distance(a, b):
        ...     return zt.ops.norm(a - b, axis=-1)
        >>> distance(np.array([[3.0, 0.0]]), np.array([[0.0, 4.0]]))
        array([5.])
    """

    if not callable(function):
        raise ConfigError(f"compiled takes a function of tensors, not {function!r}; zt.ops compute "
                          "arrays by themselves")

    @functools.wraps(function)
    def run(*arrays: Any) -> Any:
        name = getattr(function, "__name__", "function")
        operands = [as_argument(name, f"argument {k}", a, True) for k, a in enumerate(arrays)]
        typed = [(operand, dtype_of(operand.array.dtype)) for operand in operands]
        return _run(function, name, {}, typed, lambda inputs: traced(function, name, *inputs))

    return run


# -- programs --------------------------------------------------------------------------------------


class _Program:
    """One compiled call."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # keeps the buffers for one thread at a time
        self.call: Any = None  # the native call, once it is compiled
        self.nbytes = 0  # memory it holds
        self.dtypes: list[DType] = []  # of the results
        self.single = True  # one result, not a tuple

    def compile(self, label: str, typed: Typed, make: Make, device: str) -> None:
        inputs = [leaf("input", f"x{k}", operand.array.shape, d)
                  for k, (operand, d) in enumerate(typed)]
        result = make(inputs)
        self.single = isinstance(result, Value)
        results = [result] if self.single else result
        if not isinstance(results, (list, tuple)) or not all(
                isinstance(y, Value) for y in results) or not results:
            raise NotTraced(f"{label} must give a value or a tuple of values, not {result!r}")
        self.dtypes = [y.dtype for y in results]
        graph = Graph({f"y{k}": y for k, y in enumerate(results)})
        executable = build({"call": graph}, device, label)
        self.nbytes = executable.spec.memory_bytes
        self.call = executable.bind("call")

    def run(self, typed: Typed) -> Any:
        for k, ((array, _), d) in enumerate(typed):
            if (buffer := self.call.inputs.get(f"x{k}")) is not None:
                is_bf16 = d is bf16 and dtype_of(array.dtype) is bf16
                buffer[...] = array.view(np.uint16) if is_bf16 else _stored(array, d)
        self.call()
        results = [_result(buffer.copy(), d)
                   for buffer, d in zip(self.call.outputs.values(), self.dtypes, strict=True)]
        return results[0] if self.single else tuple(results)


def _stored(array: np.ndarray, d: DType) -> np.ndarray:
    return array.astype(_bfloat16()).view(np.uint16) if d is bf16 else array


def _result(array: np.ndarray, d: DType) -> np.ndarray:
    return array.view(_bfloat16()) if d is bf16 else array


def _bfloat16() -> np.dtype:
    try:
        import ml_dtypes
    except ImportError:
        raise Unsupported("NumPy has no bfloat16; pip install ml_dtypes, or use zt.ops.cast to "
                          "give a result another dtype") from None
    return np.dtype(ml_dtypes.bfloat16)


_programs: OrderedDict[tuple, _Program] = OrderedDict()  # by what they were compiled for
_lock = threading.Lock()  # guards _programs


def _run(function: Any, name: str, attributes: Mapping[str, Any], typed: Typed, make: Make) -> Any:
    """Runs the program for these shapes and dtypes; compiles it where there is none yet."""
    key = (function, _device.get(), *((operand.array.shape, d.name) for operand, d in typed))
    with _lock:
        program = _programs.setdefault(key, _Program())
        _programs.move_to_end(key)
    with program.lock:
        if program.call is None:
            try:
                program.compile(name.rpartition(".")[2], typed, make, _device.get())
            except ZtorchError as error:
                shown = [*(f"{d.long}{list(operand.array.shape)}" for operand, d in typed),
                         *(f"{k}={v!r}" for k, v in attributes.items())]
                raise type(error)(f"{error}\n    in {name}({', '.join(shown)})") from None
            finally:
                _evict(key, program)
        return program.run(typed)


def _evict(key: tuple, program: _Program) -> None:
    """Drops a program that did not compile, and the oldest ones where there are too many."""
    with _lock:
        if program.call is None and _programs.get(key) is program:
            del _programs[key]
        while len(_programs) > 1 and (
                len(_programs) > CAPACITY
                or sum(p.nbytes for p in _programs.values()) > CAPACITY_BYTES):
            _programs.popitem(last=False)


def forget() -> None:
    """Drops all programs that are kept.

    >>> forget()
    >>> len(_programs)
    0
    """
    with _lock:
        _programs.clear()


def _after_fork() -> None:
    """In a forked child no other thread runs: none releases a lock or finishes a program."""
    global _lock
    _lock = threading.Lock()
    _programs.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
