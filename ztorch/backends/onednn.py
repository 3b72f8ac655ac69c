"""Convolutions by oneDNN, which are prepared when a program is loaded.

A call of a kernel tells where its tensors are, puts the filters into the order that the library
likes, and convolves, on the thread that calls. So each worker has tensors and memory of its own.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ztorch.abi import CALL_RECORD
from ztorch.errors import DeviceError, OutOfMemory

# The values of enumerations in dnnl_types.h and dnnl_common_types.h.
_CPU, _IN_ORDER, _FLOAT32, _ANY_LAYOUT = 1, 1, 3, 1
_INFERENCE, _DIRECT, _USERS_SCRATCHPAD = 96, 1, 1
_WEIGHTS_LAYOUT, _SCRATCHPAD_LAYOUT = 131, 136  # dnnl_query_..._md
_SOURCE, _RESULT, _WEIGHTS, _BIAS, _SCRATCHPAD = 1, 17, 33, 41, 80  # DNNL_ARG_...
_ALLOCATE = ctypes.c_void_p(-1)  # DNNL_MEMORY_ALLOCATE
_OUT_OF_MEMORY = 1
_pointer, _word, _sizes = ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int64)
# The arguments of each function after the prefix dnnl_; all return a status.
_ARGUMENTS: dict[str, list[Any]] = {
    "engine_create": [_pointer, _word, ctypes.c_size_t],
    "stream_create": [_pointer, _pointer, ctypes.c_uint],
    "memory_desc_create_with_strides": [_pointer, _word, _sizes, _word, _sizes],
    "memory_desc_create_with_tag": [_pointer, _word, _sizes, _word, _word],
    "memory_create": [_pointer] * 4,
    "primitive_attr_create": [_pointer],
    "primitive_attr_set_scratchpad_mode": [_pointer, _word],
    "convolution_forward_primitive_desc_create": [
        _pointer, _pointer, _word, _word, *[_pointer] * 4, *[_sizes] * 4, _pointer],
    "reorder_primitive_desc_create": [_pointer] * 6,
    "primitive_create": [_pointer] * 2,
    **{f"{kind}_destroy": [_pointer] for kind in (
        "engine", "stream", "memory_desc", "memory", "primitive_attr", "primitive_desc",
        "primitive")}}


class _Argument(ctypes.Structure):
    """The structure dnnl_exec_arg_t."""

    _fields_ = (("argument", _word), ("memory", _pointer))


class PreparedCalls:
    """The convolutions of a loaded program. They are given back with it.

    Args:
        library: oneDNN, of version 3 or later.
        calls: The attributes of each convolution, as `ir/library_convolutions.py` names them, and
            the extents of its result, `y`.
        workers: The number of workers.
    """

    def __init__(self, library: ctypes.CDLL, calls: Sequence[Mapping[str, Any]], workers: int):
        self._functions = {name: library[f"dnnl_{name}"] for name in _ARGUMENTS}
        for name, function in self._functions.items():
            function.argtypes = _ARGUMENTS[name]
        self._layout_of = library["dnnl_primitive_desc_query_md"]
        self._layout_of.argtypes, self._layout_of.restype = [_pointer, _word, _word], _pointer
        self._objects: list[tuple[Any, ctypes.c_void_p]] = []  # with what gives them back
        self._records: list[Any] = []
        self._arguments: list[Any] = []
        self._close = weakref.finalize(self, _give_back, self._objects)
        self._close.atexit = False  # other libraries may be gone by then
        threads = library["omp_get_max_threads"]()
        library["omp_set_num_threads"](1)  # what is prepared runs on as many
        try:
            self._engine = self._made("engine", "create", _CPU, 0)
            for call in calls:
                self._prepare(call, workers)
        except DeviceError:
            self._close()
            raise
        finally:
            library["omp_set_num_threads"](threads)

    @property
    def addresses(self) -> list[int]:
        """The address of the records of each convolution."""
        return [ctypes.addressof(record) for record in self._records]

    def _prepare(self, call: Mapping[str, Any], workers: int) -> None:
        y = self._along_strides(call["y"], call["y_pitches"])
        x = self._along_strides(call["x"], call["x_pitches"])
        w = self._along_strides(call["w"], call["w_pitches"])
        bias = self._along_strides(call["y"][1:2], (1,)) if call["bias"] else None
        attributes = self._made("primitive_attr", "create")
        self._call("primitive_attr_set_scratchpad_mode", attributes, _USERS_SCRATCHPAD)
        liked = self._made("memory_desc", "create_with_tag", len(call["w"]), _int64s(call["w"]),
                           _FLOAT32, _ANY_LAYOUT)
        chosen = self._made(
            "primitive_desc", "convolution_forward", self._engine, _INFERENCE, _DIRECT, x, liked,
            bias, y, _int64s(call["strides"]), _int64s(n - 1 for n in call["dilations"]),
            _int64s(call["before"]), _int64s(call["after"]), attributes)
        layout = self._layout_of(chosen, _WEIGHTS_LAYOUT, 0)
        reorder = self._made("primitive_desc", "reorder", w, self._engine, layout, self._engine,
                             None)
        order, convolve = (self._made("primitive", "create", d) for d in (reorder, chosen))
        scratchpad = self._layout_of(chosen, _SCRATCHPAD_LAYOUT, 0)
        records = (ctypes.c_uint64 * (len(CALL_RECORD) * workers))()
        for worker in range(workers):
            tensors = {name: self._tensor(of, None) for name, of in (
                ("y", y), ("x", x), ("w", w), ("bias", bias)) if of is not None}
            ordered = self._tensor(layout, _ALLOCATE)
            arguments = [(_SOURCE, tensors["x"]), (_WEIGHTS, ordered), (_RESULT, tensors["y"]),
                         (_SCRATCHPAD, self._tensor(scratchpad, _ALLOCATE))]
            if bias is not None:
                arguments.append((_BIAS, tensors["bias"]))
            record = {
                **{name: made.value or 0 for name, made in tensors.items()},
                "filters": order.value or 0, "convolution": convolve.value or 0,
                "count": len(arguments),
                "filter_arguments": self._listed((_SOURCE, tensors["w"]), (_RESULT, ordered)),
                "arguments": self._listed(*arguments),
                "stream": self._made("stream", "create", self._engine, _IN_ORDER).value or 0}
            for k, name in enumerate(CALL_RECORD):
                records[len(CALL_RECORD) * worker + k] = record.get(name, 0)
        self._records.append(records)

    def _along_strides(self, extents: Sequence[int], pitches: Sequence[int]) -> ctypes.c_void_p:
        return self._made("memory_desc", "create_with_strides", len(extents), _int64s(extents),
                          _FLOAT32, _int64s(pitches))

    def _tensor(self, layout: Any, at: Any) -> ctypes.c_void_p:
        return self._made("memory", "create", layout, self._engine, at)

    def _listed(self, *arguments: tuple[int, ctypes.c_void_p]) -> int:
        """The address of a list of arguments."""
        listed = (_Argument * len(arguments))(*[_Argument(*a) for a in arguments])
        self._arguments.append(listed)
        return ctypes.addressof(listed)

    def _made(self, kind: str, how: str, *args: Any) -> ctypes.c_void_p:
        """A new object, which is given back in the end."""
        name = f"{how}_{kind}_create" if kind == "primitive_desc" else f"{kind}_{how}"
        made = ctypes.c_void_p()
        self._call(name, ctypes.byref(made), *args)
        self._objects.append((self._functions[f"{kind}_destroy"], made))
        return made

    def _call(self, name: str, *args: Any) -> None:
        status = self._functions[name](*args)
        if status:
            kind = OutOfMemory if status == _OUT_OF_MEMORY else DeviceError
            raise kind(f"oneDNN: dnnl_{name}: status {status}")


def _give_back(objects: list[tuple[Any, ctypes.c_void_p]]) -> None:
    while objects:
        function, made = objects.pop()
        function(made)


def _int64s(numbers: Any) -> Any:
    values = tuple(numbers)
    return (ctypes.c_int64 * len(values))(*values)
