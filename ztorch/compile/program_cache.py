"""Compiled programs that are kept for other processes, by the text of their graphs.

They lie with the assembled code, under the same rules (`codegen/object_cache.py`). A process that
finds its program there skips every stage but `load`. Programs with states are not kept: those are
models, whose weights would fill the cache.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from ztorch.codegen.assemble import llvm_identity
from ztorch.codegen.object_cache import cached, row
from ztorch.codegen.targets import Target
from ztorch.compile import tuned_files
from ztorch.compile.targeting import target_for
from ztorch.graph.text import text_of
from ztorch.graph.value import Graph
from ztorch.host import assets
from ztorch.host.settings import current
from ztorch.runtime.devices import resolve
from ztorch.runtime.packed import pack, unpack
from ztorch.runtime.running import Running
from ztorch.runtime.start import start
from ztorch.version import __version__

# Folders of the package that decide what a program is made of.
SOURCES = ("machines", "ir", "graph", "ops", "lower", "codegen", "compile", "runtime")
MOST_BYTES = 1 << 24  # of the constants of a program that is kept


def build(functions: Mapping[str, Graph], device: str, name: str) -> Running:
    """Compiles functions and loads them on a device, as `pipeline.build` does, or finds them in
    the cache.

    Args:
        functions: The graph of each function, by name.
        device: A device of this machine, such as "cpu" or "cuda:0".
        name: The name of the program.
    """
    place = resolve(device)
    kept = place.ordinal is not None and not current().interpret
    key = _key(functions, target_for(place), name) if kept else None
    if key is None:
        from ztorch.compile import pipeline  # a program that is kept needs none of its stages

        return pipeline.build(functions, device, name)

    def packed() -> bytes:
        from ztorch.compile.pipeline import compile_functions

        compiled = compile_functions(functions, target_for(place), name)
        return pack(compiled.spec, compiled.code, compiled.params)

    parts = unpack(cached(key, packed)) or unpack(packed())
    assert parts is not None
    return start(*parts, ordinal=place.ordinal)


def _key(functions: Mapping[str, Graph], target: Target, name: str) -> list[str | bytes] | None:
    """All that the program depends on; None if it is not to be kept."""
    settings = current()
    if settings.cache is None or settings.debug or settings.dump:
        return None
    if target.limits.grid is not None or target.emits_source:
        return None  # that code depends on drivers and compilers too
    parts: list[str | bytes] = ["program", __version__, _source(), llvm_identity(), np.__version__,
                                row(target), name]
    if settings.tuned and (measured := tuned_files.state()):
        parts += ["tuned", measured, str(tuned_files.usual_threads(None))]
    for function, graph in functions.items():
        constants = sum(v.attrs["data"].nbytes for v in graph.leaves("constant"))
        if constants > MOST_BYTES or graph.leaves("state"):
            return None
        text = text_of(graph)
        if text is None:
            return None
        parts += [function, text]
    return parts


@functools.cache
def _source() -> bytes:
    """A digest of the compiler and of what it compiles: sources and templates.

    It is kept itself, by what the file system says of them: reading them takes longer.
    """
    package = Path(__file__).parents[1]
    files = list(package.glob("*.py"))
    for folder in (assets.folder("templates"), *(package / room for room in SOURCES)):
        files += [Path(root, name) for root, _, names in os.walk(folder) for name in names
                  if not name.endswith(".pyc")]
    files.sort()
    status = [f.stat() for f in files]
    state = [(str(f), s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)
             for f, s in zip(files, status, strict=True)]
    return cached(("sources", repr(state)), lambda: _digest(files))


def _digest(files: Iterable[Path]) -> bytes:
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode())
        digest.update(content)
    return digest.digest()
