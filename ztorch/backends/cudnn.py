"""cuDNN, where it is on this machine: its functions, and its descriptors."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ztorch.errors import DeviceError, OutOfMemory

NAME = "cudnn"
# The values of enumerations in cudnn_graph.h: types of attributes.
HANDLE, DATA_TYPE, INT64, FLOAT, POINTER, WAY, RULES, NOTE, DESCRIPTOR = 0, 1, 3, 4, 6, 7, 8, 11, 15
_NOT_SUPPORTED = 3  # thousands
_OUT_OF_MEMORY = (4003, 4004)  # allocation failed on the host, on the device
_ELEMENTS = {HANDLE: ctypes.c_void_p, POINTER: ctypes.c_void_p, DESCRIPTOR: ctypes.c_void_p,
             INT64: ctypes.c_int64, FLOAT: ctypes.c_float}  # others are enumerations
_pointer, _word, _size = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
# The arguments of each function after the prefix cudnn; all return a status.
_ARGUMENTS: dict[str, list[Any]] = {
    "Create": [_pointer], "Destroy": [_pointer], "SetStream": [_pointer, _pointer],
    "BackendCreateDescriptor": [_word, _pointer], "BackendDestroyDescriptor": [_pointer],
    "BackendSetAttribute": [_pointer, _word, _word, _size, _pointer],
    "BackendGetAttribute": [_pointer, _word, _word, _size, _pointer, _pointer],
    "BackendFinalize": [_pointer], "BackendExecute": [_pointer] * 3,
    "CreateTensorDescriptor": [_pointer], "DestroyTensorDescriptor": [_pointer],
    "SetTensorNdDescriptor": [_pointer, _word, _word, _pointer, _pointer],
    "TransformTensor": [_pointer] * 7}


class NoEngine(DeviceError):
    """The library does not support an operation."""


class Cudnn:
    """The library. Calls need the context of a device, in which a handle was created.

    Args:
        path: Its file.
    """

    def __init__(self, path: str):
        library = ctypes.CDLL(path)
        self._functions = {name: library[f"cudnn{name}"] for name in _ARGUMENTS}
        for name, function in self._functions.items():
            function.argtypes = _ARGUMENTS[name]
        version = library.cudnnGetVersion
        version.restype = ctypes.c_size_t
        number = version()
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def call(self, name: str, *args: Any) -> None:
        """Calls a function. A status that is not success is an error with the name of the call."""
        status = self._functions[name](*args)
        if status:
            kind = (OutOfMemory if status in _OUT_OF_MEMORY else
                    NoEngine if status // 1000 == _NOT_SUPPORTED else DeviceError)
            raise kind(f"cuDNN {self.version}: cudnn{name}: status {status}")

    def handle(self) -> ctypes.c_void_p:
        """A new handle in the current context."""
        made = ctypes.c_void_p()
        self.call("Create", ctypes.byref(made))
        return made


@functools.cache
def cudnn() -> Cudnn | None:
    """cuDNN, from NVIDIA's package or the system; None if it is not there."""
    for path in _paths():
        try:
            return Cudnn(path)
        except (OSError, AttributeError):
            continue
    return None


def _paths() -> Iterator[str]:
    for folder in map(Path, sys.path):
        path = folder / "nvidia/cudnn/lib/libcudnn.so.9"
        if path.exists():
            yield str(path)
    yield "libcudnn.so.9"


class Descriptors:
    """Descriptors of the library. They are filled in, then finalized, and given back together.

    Args:
        library: The library.
    """

    def __init__(self, library: Cudnn):
        self.library = library
        self._objects: list[tuple[str, ctypes.c_void_p]] = []  # with what gives them back

    def __len__(self) -> int:
        return len(self._objects)

    def give_back(self, first: int = 0) -> None:
        """Gives back all but the `first` ones."""
        while len(self._objects) > first:
            name, made = self._objects.pop()
            self.library.call(name, made)

    def made(self, kind: int, *attributes: tuple[int, int, Sequence[Any]]) -> ctypes.c_void_p:
        """A new descriptor with attributes: their names, types and elements."""
        made = self._created(kind)
        for name, of, values in attributes:
            elements = (_ELEMENTS.get(of, ctypes.c_int) * len(values))(*values)
            self.library.call("BackendSetAttribute", made, name, of, len(values), elements)
        self.library.call("BackendFinalize", made)
        return made

    def numbers(self, made: ctypes.c_void_p, name: int, of: int, most: int = 1) -> list[int]:
        """The elements of an attribute, which may be fewer than there are."""
        elements: Any = (_ELEMENTS.get(of, ctypes.c_int) * most)()
        count = ctypes.c_int64()
        self.library.call("BackendGetAttribute", made, name, of, most, ctypes.byref(count),
                          elements)
        return [elements[k] for k in range(min(most, count.value))]

    def parts(self, made: ctypes.c_void_p, name: int, kind: int,
              most: int) -> list[ctypes.c_void_p]:
        """The descriptors that an attribute consists of. The library fills in new ones."""
        fresh, count = [self._created(kind) for _ in range(most)], ctypes.c_int64()
        elements = (ctypes.c_void_p * most)(*fresh)
        self.library.call("BackendGetAttribute", made, name, DESCRIPTOR, most,
                          ctypes.byref(count), elements)
        return fresh[:min(most, count.value)]

    def copied(self, of: int, extents: Sequence[int], pitches: Sequence[int]) -> ctypes.c_void_p:
        """A tensor of the older functions, which copy."""
        made, axes = ctypes.c_void_p(), len(extents)
        self.library.call("CreateTensorDescriptor", ctypes.byref(made))
        self._objects.append(("DestroyTensorDescriptor", made))
        self.library.call("SetTensorNdDescriptor", made, of, axes, (ctypes.c_int * axes)(*extents),
                          (ctypes.c_int * axes)(*pitches))
        return made

    def _created(self, kind: int) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self.library.call("BackendCreateDescriptor", kind, ctypes.byref(made))
        self._objects.append(("BackendDestroyDescriptor", made))
        return made
