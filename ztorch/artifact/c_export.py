"""Writes a compiled model for C programs: a header, two libraries and an example; or C source.

Weights do not pass through the compiler: the code only declares them. Our linker places them in the
shared library; in the static library they are a separate object. C source has them as an array of
hexadecimal numbers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ztorch.artifact.c_interface import CInterface
from ztorch.artifact.c_sizes import CChooser
from ztorch.codegen.archive import data_object, static_library
from ztorch.codegen.elf.contents import Blob
from ztorch.codegen.elf.link import link
from ztorch.codegen.templates import environment
from ztorch.dtypes import storage_dtype, to_storage
from ztorch.errors import ConfigError, WeightsError
from ztorch.files.atomic import write_atomic
from ztorch.runtime.spec import ProgramSpec
from ztorch.version import __version__

NUMBERS = 8  # 32-bit numbers in a line of C source


@dataclass(frozen=True)
class CLibrary:
    """A model compiled for C programs."""

    interface: CInterface
    arch: str  # x86_64 or aarch64
    object: bytes  # its code, relocatable
    params: np.ndarray  # initial parameters
    choosers: tuple[CChooser, ...] = ()  # functions that take any sizes

    @property
    def weights(self) -> bytes:
        """The params as the library embeds them, padded with zeros."""
        return self.params.tobytes().ljust(self.interface.params_bytes, b"\0")

    def shared(self) -> bytes:
        """The bytes of libNAME.so, which imports nothing and exports only functions."""
        c = self.interface
        blob = Blob(self.weights, c.params_bytes, c.align, writable=c.trains)
        return link(self.object, soname=f"lib{c.name}.so", exports=c.exports,
                    blobs={c.weights_symbol: blob})

    def static(self) -> bytes:
        """The bytes of libNAME.a: one object of code, one of weights."""
        c = self.interface
        weights = data_object(c.weights_symbol, self.weights, self.arch, c.trains)
        return static_library({f"{c.name}.o": self.object, f"{c.name}_weights.o": weights})

    def text(self, template: str) -> bytes:
        """The header or the example, from its template."""
        return _page(template, self.interface, source=False, choosers=self.choosers)

    def files(self) -> dict[str, bytes]:
        """The files of the folder by name. The header is last, so that it exists only if all do."""
        name = self.interface.name
        return {f"lib{name}.so": self.shared(), f"lib{name}.a": self.static(),
                f"{name}_example.c": self.text("example.c"), **_sizes(self),
                f"{name}.h": self.text("model.h")}


@dataclass(frozen=True)
class CSource:
    """A model as C source."""

    interface: CInterface
    params: np.ndarray  # initial parameters
    code: str  # its functions
    choosers: tuple[CChooser, ...] = ()  # functions that take any sizes

    def files(self) -> dict[str, bytes]:
        """The files of the folder by name."""
        c = self.interface
        numbers = np.frombuffer(self.params.tobytes().ljust(c.params_bytes, b"\0"), "<u4")
        lines = (", ".join(map(hex, numbers[at:at + NUMBERS].tolist()))
                 for at in range(0, numbers.size, NUMBERS))
        return {f"{c.name}.c": _page("model.c", c, code=self.code, lines=lines),
                f"{c.name}_example.c": _page("example.c", c, source=True),
                **_sizes(self),
                f"{c.name}.h": _page("model.h", c, source=True, choosers=self.choosers)}


def _sizes(library: CLibrary | CSource) -> dict[str, bytes]:
    """The file of the functions that take any sizes, if there are any."""
    c, choosers = library.interface, library.choosers
    resizes = any(axis.steps for f in choosers for t in (*f.inputs, *f.outputs) for axis in t.axes)
    page = _page("sizes.c", c, choosers=choosers, resizes=resizes)
    return {f"{c.name}_sizes.c": page} if choosers else {}


def _page(template: str, c: CInterface, **more: Any) -> bytes:
    page = environment().get_template(f"artifact/{template}.j2")
    return page.render(c=c, version=__version__, **more).encode("ascii")


def write_c(library: CLibrary | CSource, path: str | os.PathLike[str]) -> list[Path]:
    """Writes all files to a folder, each in one atomic step, and returns their paths.

        write_c(compile_c(traced.functions, TARGETS["avx2"], "digits"), "out")
        # out/libdigits.so, out/libdigits.a, out/digits_example.c, out/digits.h
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; pass a folder for the C library")
    files = library.files()
    for file, data in files.items():
        write_atomic(folder / file, data)
    return [folder / file for file in files]


def put_states(spec: ProgramSpec, params: np.ndarray, values: Mapping[str, Any]) -> np.ndarray:
    """A copy of the params with some states replaced."""
    params = params.copy()
    for name, value in values.items():
        s = spec.states.get(name)
        array = np.asarray(value)
        if s is None:
            raise WeightsError(f"the model {spec.name!r} has no state {name!r}; it has "
                               f"{', '.join(spec.states)}")
        if array.shape != s.shape:
            raise WeightsError(f"{name} has shape {s.shape} in the model {spec.name!r}, but the "
                               f"array has {array.shape}; use weights of a model with the same "
                               "layers")
        s.write(params, to_storage(storage_dtype(s.dtype), array))
    return params
