"""Compiles a model for browsers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ztorch.artifact.c_export import put_states
from ztorch.artifact.web import write_web
from ztorch.codegen import targets
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.traced_model import TracedModel
from ztorch.errors import Unsupported
from ztorch.runtime.buckets import open_axes_of
from ztorch.runtime.snapshot import Snapshot


def export_web(traced: TracedModel, path: str | os.PathLike[str], *,
               weights: Mapping[str, Any] | None = None) -> list[Path]:
    """Writes a model for browsers to a folder: NAME.zt for WebGPU, ztorch.js that runs it, and
    index.html to try it.

    Args:
        traced: What `model.trace` returns. Traced with an optimizer, the page can train.
        path: The folder.
        weights: Arrays by name, in place of the model's own; `program.weights` fits. Default:
            `None`.

    Returns:
        The paths of the files.

    Raises:
        Unsupported: Another axis than the first of a row is open.

    Examples:
        ```python
        export_web(model.trace(batch_size=1), "page", weights=program.weights)
        ```
    """
    for axes in traced.metadata.open_axes.values():
        if list(open_axes_of(axes)) != [0]:
            raise Unsupported(f"model {traced.metadata.name!r} leaves axes {axes!r} open; pages "
                              "fill up sequences only: leave the first axis alone open, or none")
    compiled = compile_functions(traced.functions, targets.target("webgpu"),
                                 traced.metadata.name)
    params = put_states(compiled.spec, compiled.params, weights or {})
    return write_web(path, Snapshot(compiled.spec, compiled.code, params, traced.metadata))
