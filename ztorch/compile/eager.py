"""Ops on arrays, here and now: each call is compiled once for its shapes and dtypes, and kept.

A call becomes a graph of one op and that a program, as any model does. Programs are kept by what
they were compiled for, the least recently used go first, and several threads may call at once.
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
from typing import Any, NamedTuple

import numpy as np

from ztorch.compile.pipeline import build
from ztorch.dtypes import DType, bf16, boolean, dtype, f64, i64, need_no_mask
from ztorch.errors import ConfigError, DataError, UnknownName, Unsupported, ZtorchError
from ztorch.graph.op import Public, leaf
from ztorch.graph.tracing import NotTraced, traced
from ztorch.graph.value import Graph, Value
from ztorch.ir.opcodes import OPCODES
from ztorch.ops import signature

CAPACITY = 256  # programs kept,
ROOM = 1 << 28  # and bytes that they may hold together; the newest is kept whatever it takes

_dtype = functools.lru_cache(dtype)
_device: ContextVar[str] = ContextVar("device", default="cpu")


@contextmanager
def on(device: str) -> Iterator[None]:
    """Ops on arrays run on this device inside.

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
    """What an op gives for arrays, numbers and lists: a NumPy array, or as many as it has results.

    Numbers mix with arrays as in NumPy: they take the dtype of the arrays, unless it cannot hold
    their kind. Among arrays, elementwise ops find a common dtype as NumPy does, others only among
    floats: indices stay what they are.
    """
    name = f"zt.ops.{public.name}"
    own, tensors = signature(public.name)
    try:
        bound = own.bind(*args, **attrs)
    except TypeError as error:
        raise TypeError(f"{name}: {error}; it is {public.name}{own}") from None
    given: list[Given] = []
    order: list[tuple[str, int | None]] = []  # parameter, and how many of a *parameter

    def add(parameter: str, x: Any) -> None:
        mere = isinstance(x, float) or "float" in str(own.parameters[parameter.partition("[")[0]]
                                                      .annotation)
        given.append(_given(name, parameter, x, mere))

    plain: dict[str, Any] = {}
    parameters = own.parameters
    for parameter, x in bound.arguments.items():
        if x is None and parameter in tensors and parameters[parameter].default is not None:
            raise DataError(f"{name}: {parameter} is None; give an array or a number")
        if parameter not in tensors or x is None:
            plain[parameter] = _plain(f"{name}({parameter}=...)", x)
        elif parameters[parameter].kind is inspect.Parameter.VAR_POSITIONAL:
            many = x[0] if len(x) == 1 and isinstance(x[0], (list, tuple)) else x
            order.append((parameter, len(many)))
            for k, one in enumerate(many):
                add(f"{parameter}[{k}]", one)
        else:
            order.append((parameter, None))
            add(parameter, x)

    def make(leaves: Sequence[Value]) -> Any:
        rest, positional = iter(leaves), []
        named = dict(plain)
        for parameter, count in order:
            if count is not None:
                positional += [next(rest) for _ in range(count)]
            elif parameters[parameter].kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(next(rest))
            else:
                named[parameter] = next(rest)
        try:
            return public.call(*positional, **named)
        except ZtorchError:
            raise
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise ConfigError(f"{name} cannot be called like this ({type(error).__name__}: "
                              f"{error}); it is {public.name}{own}") from error

    settled = _settled(public, given)
    return _run((public.name, tuple(order), repr(plain)), name, plain, settled, make)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one native call for each set of shapes and dtypes: it is called with values
    of a graph, once, and gives one or a tuple.

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
        given = [_given(name, f"argument {k}", a, True) for k, a in enumerate(arrays)]
        settled = [(g, _dtype(g.array.dtype)) for g in given]
        return _run(function, name, {}, settled,
                    lambda leaves: traced(function, name, *leaves))

    return run


# -- arguments -------------------------------------------------------------------------------------


class Given(NamedTuple):
    """An argument as an array; `weak` if it was a mere number, which has no dtype of its own,
    where one is welcome: as an index, a whole number is one of int64."""

    array: np.ndarray
    weak: bool


def _given(name: str, parameter: str, x: Any, weak: bool) -> Given:
    if isinstance(x, (bool, int, float)):
        return Given(np.asarray(x), weak)
    if not hasattr(x, "__array__") and hasattr(x, "__dlpack__"):
        return Given(np.from_dlpack(x), False)
    need_no_mask(f"{name}: {parameter}", x)
    try:
        array = np.asarray(x)
    except ValueError as error:  # lists of lists of several lengths
        raise DataError(f"{name}: {parameter} is no array: {error}") from None
    try:
        _dtype(array.dtype)
    except UnknownName:
        raise DataError(f"{name}: {parameter} is an array of {array.dtype}; use "
                        "numbers of a dtype such as float32, int64 or bool") from None
    return Given(array, False)


def _plain(what: str, x: Any) -> Any:
    """An attribute as Python's own numbers, names and tuples of them, which can be compared."""
    if isinstance(x, (np.generic, np.ndarray)):
        x = x.tolist()
    if isinstance(x, (list, tuple)):
        return tuple(_plain(what, y) for y in x)
    if isinstance(x, slice):
        return slice(*(_plain(what, y) for y in (x.start, x.stop, x.step)))
    if x is None or x is Ellipsis or isinstance(x, (bool, int, float, str, DType)):
        return x
    try:
        return dtype(x)  # np.float32 and the like
    except UnknownName:
        raise ConfigError(f"{what} takes plain values, not {x!r}") from None


def _settled(public: Public, given: Sequence[Given]) -> list[tuple[Given, DType]]:
    """Each argument with the dtype it is computed in."""
    row = OPCODES.get(public.primitive.opcode) if public.primitive and (
        public.primitive.kind == "map") else None
    alike = row is not None or public.name == "clip"
    first = 1 if public.name == "where" else 0  # a condition has its own dtype
    strong = [g.array.dtype for g in given[first:] if not g.weak]
    if not alike:
        strong = [d for d in strong if _dtype(d).is_float] or strong[:1]
    common = _common(public, strong, [g.array for g in given[first:] if g.weak])
    if row is not None and row.kinds == "f" and not common.is_float:
        common = f64  # as NumPy's functions of whole numbers
    settled = []
    for k, g in enumerate(given):
        own = _dtype(g.array.dtype)
        shared = k >= first and (alike or g.weak or own.is_float)
        settled.append((g, common if shared else own))
        if shared and g.weak and common.is_int and g.array != g.array.astype(common.numpy):
            raise DataError(f"zt.ops.{public.name}: {g.array} is no {common}; use an array of a "
                            "wider dtype")
    return settled


def _common(public: Public, strong: Sequence[np.dtype], weak: Sequence[np.ndarray]) -> DType:
    rank = {"b": 0, "u": 1, "s": 1, "f": 2}
    try:
        found = _dtype(np.result_type(*strong)) if strong else boolean
    except (TypeError, UnknownName):
        raise DataError(f"zt.ops.{public.name}: {' and '.join(map(str, strong))} have no common "
                        "dtype; use zt.ops.cast to choose one") from None
    kind = max((rank[_dtype(w.dtype).kind] for w in weak), default=0)
    return found if kind <= rank[found.kind] else {1: i64, 2: f64}[kind]


# -- programs --------------------------------------------------------------------------------------


class _Program:
    """One compiled call; `lock` keeps its buffers for one thread at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.call: Any = None
        self.nbytes = 0
        self.dtypes: list[DType] = []
        self.single = True

    def compile(self, label: str, settled: Sequence[tuple[Given, DType]],
                make: Callable[[Sequence[Value]], Any], device: str) -> None:
        leaves = [leaf("input", f"x{k}", g.array.shape, d) for k, (g, d) in enumerate(settled)]
        made = make(leaves)
        self.single = isinstance(made, Value)
        results = [made] if self.single else made
        if not isinstance(results, (list, tuple)) or not all(
                isinstance(y, Value) for y in results) or not results:
            raise NotTraced(f"{label} must give a value or a tuple of values, not {made!r}")
        self.dtypes = [y.dtype for y in results]
        graph = Graph({f"y{k}": y for k, y in enumerate(results)})
        executable = build({"call": graph}, device, label)
        self.nbytes = executable.spec.memory_bytes
        self.call = executable.bind("call")

    def run(self, settled: Sequence[tuple[Given, DType]]) -> Any:
        for k, (g, d) in enumerate(settled):
            if (buffer := self.call.inputs.get(f"x{k}")) is not None:
                buffer[...] = g.array.view(np.uint16) if (
                    d is bf16 and _dtype(g.array.dtype) is bf16) else _stored(g.array, d)
        self.call()
        found = [_result(a.copy(), d)
                 for a, d in zip(self.call.outputs.values(), self.dtypes, strict=True)]
        return found[0] if self.single else tuple(found)


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


_kept: OrderedDict[tuple, _Program] = OrderedDict()
_lock = threading.Lock()


def _run(what: Any, name: str, plain: Mapping[str, Any], settled: Sequence[tuple[Given, DType]],
         make: Callable[[Sequence[Value]], Any]) -> Any:
    key = (what, _device.get(), *((g.array.shape, d.name) for g, d in settled))
    with _lock:
        program = _kept.setdefault(key, _Program())
        _kept.move_to_end(key)
    with program.lock:
        if program.call is None:
            try:
                program.compile(name.rpartition(".")[2], settled, make, _device.get())
            except ZtorchError as error:
                shown = ", ".join([*(f"{d.long}{list(g.array.shape)}" for g, d in settled),
                                   *(f"{k}={v!r}" for k, v in plain.items())])
                raise type(error)(f"{error}\n    in {name}({shown})") from None
            finally:
                _tidy(key, program)
        return program.run(settled)


def _tidy(key: tuple, program: _Program) -> None:
    """Forget a program that did not compile, and the oldest where there are too many."""
    with _lock:
        if program.call is None and _kept.get(key) is program:
            del _kept[key]
        while len(_kept) > 1 and (len(_kept) > CAPACITY
                                  or sum(p.nbytes for p in _kept.values()) > ROOM):
            _kept.popitem(last=False)


def forget() -> None:
    """Drop all programs that were kept.

    >>> forget()
    >>> len(_kept)
    0
    """
    with _lock:
        _kept.clear()


def _after_fork() -> None:
    """In a forked child nobody holds a lock, nor finishes what another thread began."""
    global _lock
    _lock = threading.Lock()
    _kept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
