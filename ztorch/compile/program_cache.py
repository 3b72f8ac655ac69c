"""Compiled programs that are cached for other processes, by the text of their graphs.

They are stored with the assembled code, under the same rules (`codegen/object_cache.py`). A process
that finds its program there skips every stage except `load`. Initial values of weights are not
stored: they are part of the graphs, and do not affect the code.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ztorch.codegen.llvm import llvm_identity
from ztorch.codegen.object_cache import cached, canonical_text
from ztorch.compile import tuned_files
from ztorch.compile.memory_sizes import byte_count
from ztorch.compile.parameters import begun_parameters
from ztorch.compile.targeting import target_for, with_libraries
from ztorch.graph.text import text_of
from ztorch.graph.value import Graph, Value
from ztorch.host import assets
from ztorch.host.settings import current
from ztorch.runtime.devices import resolve
from ztorch.runtime.loaded_program import LoadedProgram
from ztorch.runtime.packed import pack, unpack
from ztorch.runtime.spec import ProgramSpec
from ztorch.runtime.start import need_room, start
from ztorch.terminal.work_line import at
from ztorch.version import __version__

if TYPE_CHECKING:
    from ztorch.codegen.targets import Target

# Folders of the package that affect the code of a program.
SOURCES = ("machines", "ir", "graph", "ops", "lower", "codegen", "compile", "runtime")
OWN_ASSEMBLERS = ("", "assemble", "spirv", "ptx")  # "": the driver takes text, as it does for "ptx"
MOST_BYTES = 1 << 24  # of the constants of a cached program


def build(functions: Mapping[str, Graph], device: str, name: str, threads: int | None = None,
          precision: str = "float32", memory_limit: int | str | None = None,
          with_less_memory: Callable[[], Mapping[str, Graph]] | None = None) -> LoadedProgram:
    """Compiles functions and loads them on a device, or finds them in the cache. Arguments are
    those of `pipeline.build`."""
    place = resolve(device)
    is_stored = place.ordinal is not None and not current().interpret
    limit = None if memory_limit is None else byte_count("memory_limit", memory_limit)
    target = with_libraries(target_for(place), place.ordinal is not None)
    target = target.with_precision(precision)
    key = _key(functions, target, name, limit, threads) if is_stored else None

    def compiled_anew() -> LoadedProgram:
        from ztorch.compile import pipeline  # a cached program needs none of its stages

        return pipeline.build(functions, device, name, threads, precision, memory_limit=limit,
                              with_less_memory=with_less_memory)

    if key is None:
        return compiled_anew()

    new: list[tuple[ProgramSpec, bytes, list[np.ndarray]]] = []

    def packed() -> bytes:
        from ztorch.compile.pipeline import compiled_within

        compiled = compiled_within(limit, functions, target, name, threads, with_less_memory)
        new.append((compiled.spec, compiled.code, [data for _, data in compiled.placed.constants]))
        return pack(*new[0])  # its plans and text are dropped before weights need memory

    kept_parts = cached(key, packed)
    states = {v.attrs["name"]: v for graph in functions.values() for v in graph.leaves("state")}
    parts = new[0] if new else unpack(kept_parts)
    if parts is None or not _has_all(parts[0], states):  # too large for the limits of files
        return compiled_anew()
    spec, code, constants = parts
    at("load")
    need_room(spec, place.ordinal)
    params, first = begun_parameters(spec, states, constants)
    program = start(spec, code, params, threads, place.ordinal, first)
    if program.calls_libraries:
        from ztorch.compile.pipeline import with_own_kernels

        with_own_kernels(program, limit, functions, target, threads, with_less_memory)
    return program


def _has_all(spec: ProgramSpec, states: Mapping[str, Value]) -> bool:
    """Whether a program has states with these names, shapes and dtypes."""
    return all((s := spec.states.get(name)) is not None and s.shape == v.shape
               and s.dtype == v.dtype for name, v in states.items())


def _key(functions: Mapping[str, Graph], target: Target, name: str,
         memory_limit: int | None = None, threads: int | None = None) -> list[str | bytes] | None:
    """Everything that the program depends on; None if it is not cached."""
    settings = current()
    if settings.cache is None or settings.debug or settings.dump:
        return None
    if target.assembler not in OWN_ASSEMBLERS:
        return None  # the code also depends on other compilers
    parts: list[str | bytes] = ["program", __version__, _source(), llvm_identity(), np.__version__,
                                canonical_text(target), name, repr(memory_limit)]
    if target.assembler == "ptx":
        from ztorch.codegen import ptx  # other targets need none of NVIDIA's programs

        parts.append(ptx.assembler_versions())
    if settings.tuned and (measured := tuned_files.state()):
        parts += ["tuned", measured, str(tuned_files.usual_threads(threads))]
    for function, graph in functions.items():
        constants = sum(v.attrs["data"].nbytes for v in graph.leaves("constant"))
        text = text_of(graph) if constants <= MOST_BYTES else None
        if text is None:
            return None
        parts += [function, text]
    return parts


@functools.cache
def _source() -> bytes:
    """A digest of the compiler's sources and templates.

    The file itself is cached under its size and modification time, because reading it takes longer.
    """
    package = Path(__file__).parents[1]
    files = [file.path for file in os.scandir(package) if file.name.endswith(".py")]
    for folder in (assets.folder("templates"), *(package / room for room in SOURCES)):
        files += [f"{root}/{name}" for root, _, names in os.walk(folder) for name in names
                  if not name.endswith(".pyc")]  # hundreds: strings, not paths
    files.sort()
    state = [(f, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)
             for f, s in zip(files, map(os.stat, files), strict=True)]
    return cached(("sources", repr(state)), lambda: _digest(files))


def _digest(files: Iterable[str]) -> bytes:
    digest = hashlib.sha256()
    for path in map(Path, files):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode())
        digest.update(content)
    return digest.digest()
