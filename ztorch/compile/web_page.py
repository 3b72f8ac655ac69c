"""Compiles a model for browsers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ztorch.artifact.c_export import put_states
from ztorch.artifact.web import write_web
from ztorch.codegen import targets
from ztorch.compile.functions import Functions
from ztorch.compile.pipeline import compile_functions
from ztorch.runtime.snapshot import Snapshot


def export_web(traced: Functions, path: str | os.PathLike[str], *,
               weights: Mapping[str, Any] | None = None) -> list[Path]:
    """Writes a traced model for browsers to a folder: NAME.zt for WebGPU, ztorch.js that runs it,
    and index.html to try it. It trains if it was traced with an optimizer. `weights` (by the names
    of states) replace first values.

        export_web(model.trace(batch_size=1), "page", weights=program.weights)
    """
    made = compile_functions(traced.functions, targets.target("webgpu"), traced.metadata.name)
    params = put_states(made.spec, made.params, weights or {})
    return write_web(path, Snapshot(made.spec, made.code, params, traced.metadata))
