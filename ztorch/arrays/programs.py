"""Compiled computations on tensors, cached by their structure.

A number, such as the 2 of `x * 2`, is compiled into the code. If the same structure occurs with
another number, such as a changing learning rate, that number becomes an input.
"""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ztorch.arrays.calls import Call
from ztorch.arrays.memory import Allocation, Pool
from ztorch.arrays.node import Handle, TensorNode
from ztorch.arrays.quick_calls import Native, Output, may_be_native, native_call
from ztorch.arrays.specs import Spec
from ztorch.arrays.structure import NUMBER, number_dtypes, rebuild
from ztorch.backends.matching import Building, Matching
from ztorch.compile.program_cache import build
from ztorch.dtypes import to_storage
from ztorch.graph.op import OPS, constant, leaf
from ztorch.graph.value import Graph, Value
from ztorch.locks import new_lock
from ztorch.runtime.executable import HostMemoryCall
from ztorch.runtime.loaded_program import MemoryCall

CAPACITY = 1024  # maximum number of cached programs
CAPACITY_BYTES = 1 << 28  # memory of all cached programs; the newest one is always kept


class ArrayProgram:
    """One compiled structure; it is recompiled when a number turns out to vary."""

    def __init__(self, key: tuple[Any, ...], results: tuple[int, ...], device: str,
                 name: str = ""):
        """`results` are the slots of the computed nodes, `device` is the device to compile for. An
        empty name means the name of the last op."""
        self._name = name
        self.nbytes = 0  # memory that it holds
        self._lock = new_lock()  # one thread at a time compiles, sets numbers and runs
        self._key = key
        self._results = results
        self._pool: Pool | None = None  # the memory it was compiled for
        self._device = device
        self._number_dtypes = number_dtypes(key)
        self._numbers: list[Any] = []  # the numbers that it was compiled for, or last ran with
        self._signed = False  # whether the sign of a zero among them matters
        self._varying: dict[int, Allocation] = {}  # which of them are inputs, with their memory
        # The leaves that are inputs, in the function's order; None: all, in their order.
        self._leaves_read: list[int] | None = None
        self._numbers_read: list[Any] = []  # memory of the numbers that are inputs, in order
        self._sized: list[int] | None = None  # results that are not empty; None if all are not
        self._call: Any = None  # the compiled function; None if all its results are empty
        self._memory_call: MemoryCall | None = None  # the same function, with more detail
        self.is_quick = False  # whether a native function may run it: no number varies

    def run(self, pool: Pool, leaves: Sequence[TensorNode], places: list[Any],
            numbers: list[Any], outputs: list[Any]) -> None:
        """Computes the results.

        Args:
            pool: The memory of all tensors.
            leaves: The computed nodes of the structure.
            places: The addresses of the leaves. The caller keeps their memory alive.
            numbers: The numbers of the structure.
            outputs: The addresses of the results.
        """
        with self._lock:
            if pool is not self._pool:  # not compiled yet, or for a device that was closed
                self._varying = {}
                self._compile(pool, numbers, leaves)
            elif numbers != self._numbers or (self._signed and not _same(numbers, self._numbers)):
                self._adapt(numbers, leaves)
            if self._call is not None:
                if self._leaves_read is not None:
                    places = [places[k] for k in self._leaves_read]
                if self._sized is not None:
                    outputs = [outputs[k] for k in self._sized]
                self._call(places + self._numbers_read, outputs)

    @property
    def is_compiled(self) -> bool:
        """Whether it ran before."""
        return self._pool is not None

    def native(self, numbers: Sequence[Any], matching: Matching, outputs: Sequence[Output],
               tensor: type[Handle] | None = None, building: Building | None = None
               ) -> Native | None:
        """A native function that runs the program without this object.

        Args:
            numbers: The Python numbers that the function is for.
            matching: How the function matches its arguments, given those numbers.
            outputs: The results.
            tensor: The class of tensors. Default: `None`.
            building: The structure of the tensors that it returns. Default: `None`.
        """
        with self._lock:
            call, pool = self._memory_call, self._pool
            if not isinstance(call, HostMemoryCall) or pool is None or not self.is_quick or (
                    not _same(numbers, self._numbers)):
                return None
            matching.read(self._leaves_read)
            return native_call(call, matching, outputs, pool, tensor, building)

    def _adapt(self, numbers: list[Any], leaves: Sequence[TensorNode]) -> None:
        """Turns numbers that changed into inputs, and sets the values of all numbers that are
        inputs."""
        pool = self._pool
        assert pool is not None
        self._pool = None  # until it is done: a failure must not leave old numbers behind
        changed = {k for k, (a, b) in enumerate(zip(numbers, self._numbers, strict=True))
                   if not _same([a], [b])}
        if new := changed - self._varying.keys():
            self._varying |= {k: pool.alloc(self._number_dtypes[k].bytes) for k in new}
            self._compile(pool, numbers, leaves)
        for k, block in self._varying.items():
            d = self._number_dtypes[k]
            pool.write(block, to_storage(d, np.asarray(numbers[k], d.working)))
        self._pool, self._numbers, self._signed = pool, numbers, 0.0 in numbers

    def _compile(self, pool: Pool, numbers: list[Any], leaves: Sequence[TensorNode]) -> None:
        specs = [node.spec for node in leaves]
        xs = [leaf("input", f"x{k}", s.shape, s.dtype) if s.size else
              constant(np.zeros(s.shape), s.dtype) for k, s in enumerate(specs)]
        ns = [leaf("input", f"n{k}", (), d) if k in self._varying else OPS.full((), number, d)
              for k, (number, d) in enumerate(zip(numbers, self._number_dtypes, strict=True))]
        nodes = rebuild(self._key, xs, ns)
        sized = [k for k, slot in enumerate(self._results) if nodes[slot].size]
        if sized:
            self._build(nodes, sized, len(leaves))
        self._pool, self._numbers, self._signed = pool, numbers, 0.0 in numbers

    def _build(self, nodes: Mapping[int, Value], sized: list[int], leaves: int) -> None:
        """Compiles the results that are not empty; `leaves` is the number of leaves."""
        self._sized = None if len(sized) == len(self._results) else sized
        graph = Graph({f"y{k}": nodes[self._results[k]] for k in sized})
        ops = (call.name for call in self._key if isinstance(call, Call))
        running = build({"call": graph}, self._device, self._name or next(ops, "copy"))
        ports = [(port[0], int(port[1:])) for port in running.functions["call"].inputs]
        read = [k for kind, k in ports if kind == "x"]
        self._leaves_read = None if read == [*range(leaves)] else read
        self._numbers_read = [self._varying[k].place for kind, k in ports if kind == "n"]
        self._memory_call = running.bind_memory("call")
        self._call = self._memory_call.unlocked()
        self.nbytes = running.spec.memory_bytes
        self.is_quick = isinstance(self._memory_call, HostMemoryCall) and may_be_native(
            self._memory_call) and self._sized is None and not self._varying


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two lists of numbers are the same; 0.0 and -0.0 differ."""
    return a == b and (0.0 not in a or repr(a) == repr(b))


_of_calls: dict[tuple[str, Call], ArrayProgram] = {}  # programs of one call
_programs: OrderedDict[tuple[Any, ...], ArrayProgram] = OrderedDict()  # by structure
_lock = new_lock()  # guards _programs
_with_natives: set[Call] = set()  # calls with native functions
MOST_NATIVES = 16  # limit for each call and depth; the oldest are dropped


def program_for(key: tuple[Any, ...], results: tuple[int, ...], device: str) -> ArrayProgram:
    """The program of a structure; it may not be compiled yet.

    Args:
        key: The structure.
        results: The slots of the computed nodes.
        device: The device to compile for.
    """
    name = (device, results, key)
    program = _programs.get(name)
    if program is None or len(_programs) > CAPACITY // 2:  # until then, the order does not matter
        with _lock:
            program = _programs.get(name)
            if program is None:
                program = _programs[name] = ArrayProgram(key, results, device)
                _evict()
            _programs.move_to_end(name)
    return program


def program_of(call: Call, device: str) -> ArrayProgram:
    """The program of one call whose operands are computed.

    Args:
        call: The call, with one result.
        device: The device to compile for.
    """
    program = _of_calls.get((device, call))
    if program is None or len(_programs) > CAPACITY // 2:
        slots = itertools.count(-1, -1)
        key = (call, *[next(slots) if isinstance(o, Spec) else NUMBER for o in call.operands])
        program = _of_calls[device, call] = program_for(key, (0,), device)
    return program


def may_know_natives() -> bool:
    """Whether the cache has room, so that no program is dropped soon."""
    return len(_programs) <= CAPACITY // 2


def set_known(call: Call, key: Any, native: Native) -> None:
    """Registers a native function, so that pending nodes are computed without a program lookup.

    Args:
        call: The call of the first node.
        key: The node's depth, and the number of nodes if there are several.
        native: A function that computes them if their structure matches.
    """
    with _lock:
        # A new list, because another thread may iterate over the old one.
        call.natives[key] = [native, *call.natives.get(key, [])[:MOST_NATIVES - 1]]
        _with_natives.add(call)


def find_calls_again() -> None:
    """Makes the next use of each call and structure look up its program again."""
    for call in [*_with_natives]:
        call.natives = {}
    _with_natives.clear()
    _of_calls.clear()


def _evict() -> None:
    """Drops the least recently used programs above the limits."""
    if len(_programs) > CAPACITY // 2:  # the order matters from now on
        find_calls_again()
    while len(_programs) > 1 and (len(_programs) > CAPACITY or sum(
            p.nbytes for p in _programs.values()) > CAPACITY_BYTES):
        _programs.popitem(last=False)


def forget() -> None:
    """Drops all cached programs.

    >>> forget()
    >>> len(_programs)
    0
    """
    with _lock:
        find_calls_again()
        _programs.clear()


def _after_fork() -> None:
    """In a forked child no other thread runs, so nothing would release a lock or finish a
    program."""
    find_calls_again()
    _programs.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
