"""Libraries of this machine whose products and convolutions the tuner may measure beside ours.

OpenBLAS comes with NumPy, or from the system; oneDNN from the system or a package. A library that
lacks one of the functions below is not used. A call computes on one thread, since our workers share
a product: OpenBLAS is loaded as a copy of its own, so that NumPy goes on with all of its threads.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ztorch.abi import CONNECT, CONVOLVES, FOREIGN_FUNCTIONS, LIBRARY_CALLS
from ztorch.backends.library import new_path
from ztorch.backends.onednn import PreparedCalls
from ztorch.backends.python_calls import address_of
from ztorch.errors import DeviceError
from ztorch.host.settings import default_environment
from ztorch.locks import new_lock

_OPENMP = 2  # DNNL_RUNTIME_OMP, how oneDNN runs its threads
_SEQUENTIAL, _PTHREADS = 0, 1  # how OpenBLAS was built; with OpenMP, threads are not its own
# What stands around the names of its functions: in wheels, and elsewhere. Sizes are passed in 64
# bits; where they have 32, the lower half of a register or a place on the stack is the number.
_AROUND = (("scipy_", "64_"), ("", "64_"), ("", ""))
_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
            "/usr/local/lib", f"{sys.prefix}/lib")

_lock = new_lock()  # held while the environment is changed


class VendorLibrary(NamedTuple):
    """A library that is loaded."""

    name: str  # such as openblas
    version: str  # with the kind of processor that it has chosen code for
    path: str
    addresses: dict[str, int]  # of its functions, by their names in FOREIGN_FUNCTIONS


@functools.cache
def vendor_libraries() -> tuple[VendorLibrary, ...]:
    """The libraries of this machine, at most one of each name.

    >>> all(library.version for library in vendor_libraries())
    True
    """
    finds = (next(_openblas(), None), next(_onednn(), None))
    return tuple(library for library in finds if library is not None)


def versions() -> tuple[tuple[str, str], ...]:
    """The names and versions of the libraries of this machine.

    >>> {name for name, _ in versions()} <= {"openblas", "onednn"}
    True
    """
    return tuple((library.name, library.version) for library in vendor_libraries())


def connect(code: ctypes.CDLL, workers: int) -> PreparedCalls | None:
    """Gives a program that was loaded the addresses of the functions that its kernels may call, and
    prepares its convolutions. What this returns must last as long as the program.

        connect(load_library(code, "digits"), workers=2)

    Args:
        code: The library of the program.
        workers: The largest number of its workers.
    """
    known = {name: address for library in vendor_libraries()
             for name, address in library.addresses.items()}
    prepared = None
    if hasattr(code, LIBRARY_CALLS):
        described = code[LIBRARY_CALLS]
        described.restype = ctypes.c_char_p
        calls = json.loads(described())
        path = next((library.path for library in vendor_libraries()
                     if "onednn_run" in library.addresses), None)
        if path is None:
            raise DeviceError("cpu: oneDNN is not there; compile the program again")
        prepared = PreparedCalls(ctypes.CDLL(path), [*calls.values()], workers)
    addresses = [*map(known.get, FOREIGN_FUNCTIONS), *(prepared.addresses if prepared else ())]
    table = (ctypes.c_void_p * len(addresses))(*addresses)
    take = code[CONNECT]
    take.argtypes, take.restype = [ctypes.c_void_p], None
    take(ctypes.addressof(table))
    return prepared


def _openblas() -> Iterator[VendorLibrary]:
    """The copies of OpenBLAS here: that of NumPy's wheel first, whose processor it knows."""
    wheel = Path(np.__file__).parents[1] / "numpy.libs"
    paths = [*sorted(wheel.glob("lib*openblas*.so")),
             *(path for folder in _FOLDERS if (path := Path(folder, "libopenblas.so.0")).exists())]
    for path in paths:
        try:
            library = _openblas_at(path)
        except (OSError, AttributeError):  # not for this machine, or without some function
            continue
        if library is not None:
            yield library


def _openblas_at(path: Path) -> VendorLibrary | None:
    """OpenBLAS in a file; None if its threads are not its own."""
    with _lock, default_environment(OPENBLAS_NUM_THREADS="1"):  # else it starts more
        library = _copy_of(path)

    def function(name: str, result: Any = None) -> Any:
        names = (f"{before}{name}{after}" for before, after in _AROUND)
        called = next((library[n] for n in names if hasattr(library, n)), None)
        if called is None:
            raise AttributeError(name)
        called.restype = result
        return called

    if function("openblas_get_parallel", ctypes.c_int)() not in (_SEQUENTIAL, _PTHREADS):
        return None
    function("openblas_set_num_threads")(1)
    if function("openblas_get_num_threads", ctypes.c_int)() != 1:
        return None
    release = function("openblas_get_config", ctypes.c_char_p)().decode().split()[1]
    core = function("openblas_get_corename", ctypes.c_char_p)().decode()
    return VendorLibrary("openblas", f"{release} {core}", str(path), {
        "openblas_f32": address_of(function("cblas_sgemm")),
        "openblas_f64": address_of(function("cblas_dgemm"))})


class _OnednnVersion(ctypes.Structure):
    """The structure dnnl_version_t."""

    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int),
                ("hash", ctypes.c_char_p), ("cpu_runtime", ctypes.c_uint),
                ("gpu_runtime", ctypes.c_uint))


def _onednn() -> Iterator[VendorLibrary]:
    """oneDNN of the system or of a package, where its threads are those of OpenMP: kernels set
    their number for the thread that calls."""
    for path in (Path(folder, f"libdnnl.so.{n}") for n in (3, 2) for folder in _FOLDERS):
        try:
            library = ctypes.CDLL(str(path))
            level, version = library.dnnl_get_effective_cpu_isa, library.dnnl_version
            version.restype = ctypes.POINTER(_OnednnVersion)
            v = version().contents
            addresses = {"onednn_f32": address_of(library.dnnl_sgemm),
                         "onednn_threads": address_of(library.omp_get_max_threads),
                         "onednn_set_threads": address_of(library.omp_set_num_threads)}
            if v.major >= CONVOLVES["onednn"]:
                addresses |= {"onednn_place": address_of(library.dnnl_memory_set_data_handle),
                              "onednn_run": address_of(library.dnnl_primitive_execute)}
        except (OSError, AttributeError):
            continue
        if v.cpu_runtime == _OPENMP:
            yield VendorLibrary("onednn", f"{v.major}.{v.minor}.{v.patch} isa {level():#x}",
                                str(path), addresses)


def _copy_of(path: Path) -> ctypes.CDLL:
    """A library that is loaded once more, with state of its own: from a memory file, because the
    loader knows a library by its file, and by a path that nothing was loaded from before."""
    with open(os.memfd_create(f"ztorch-{path.name}"), "wb") as file:
        file.write(path.read_bytes())
        file.flush()
        return ctypes.CDLL(new_path(file.fileno()))  # the mapping remains
