"""Compiles a traced model for a device, here or elsewhere, and writes it to disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ztorch.artifact.write import write_artifact
from ztorch.compile.c_library import export_c
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.targeting import target_for
from ztorch.compile.traced_model import TracedModel
from ztorch.compile.web_page import export_web
from ztorch.errors import ConfigError, unknown
from ztorch.runtime.devices import resolve
from ztorch.runtime.snapshot import Snapshot

FORMATS = ("zt", "onnx", "c", "web")  # the last two are folders
_FILE_SUFFIXES = (".zt", ".onnx", ".so", ".a", ".c", ".h", ".html", ".js")


def chosen_format(path: str | os.PathLike[str], device: str, format_: str | None) -> str:
    """One of FORMATS: the requested one, or that of the path's suffix.

    >>> chosen_format("digits.zt", "auto", None), chosen_format("page", "auto", "web")
    ('zt', 'web')
    """
    name = os.fspath(path)
    if format_ is None:
        suffix = Path(name).suffix
        if suffix not in (".zt", ".onnx"):
            raise ConfigError(f"export({name!r}) has no known format: end the name in .zt "
                              "or .onnx, or add format='c' or format='web' for a folder (in a "
                              "shell --so or --web)")
        format_ = suffix[1:]
    if format_ not in FORMATS:
        raise unknown("format", format_, FORMATS)
    if format_ in ("c", "web") and (not name or name.endswith(_FILE_SUFFIXES)):
        raise ConfigError(f"format {format_!r} writes several files to a folder, and {name!r} does "
                          "not look like one")
    if format_ == "web" and device not in ("auto", "webgpu"):
        raise ConfigError(f"a web page runs on WebGPU and WebAssembly: omit device {device!r}")
    return format_


def export_traced(traced: TracedModel, path: str | os.PathLike[str], device: str,
                  format_: str, page: Mapping[str, Any] | None = None) -> list[Path]:
    """Writes a traced model and returns the paths of the files.

    Args:
        traced: The result of `model.trace`.
        path: The file, or the folder for "c" and "web".
        device: The device or chip, which need not be in this machine.
        format_: "zt", "c" or "web".
        page: Further arguments of `export_web`. Default: `None`.
    """
    if format_ == "web":
        return export_web(traced, path, **page or {})
    if format_ == "c":
        return export_c(traced, path, device=device)
    target = target_for(resolve(device, must_be_local=False))
    compiled = compile_functions(traced.functions, target, traced.metadata.name)
    write_artifact(path, Snapshot(compiled.spec, compiled.code, compiled.params, traced.metadata))
    return [Path(path)]
