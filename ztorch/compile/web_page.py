"""Compiles a model for browsers: for WebGPU, with WebAssembly as a fallback."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ztorch.artifact.c_export import put_states
from ztorch.artifact.web import PageData, write_web
from ztorch.artifact.web_samples import choose
from ztorch.codegen import targets, wasm
from ztorch.codegen.targets import Target
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.traced_model import TracedModel
from ztorch.errors import ConfigError, Unsupported
from ztorch.runtime.snapshot import Snapshot
from ztorch.tabular.rows import rows_with_texts

LACKS = (f"it was exported without WebAssembly, which needs the package {wasm.PACKAGE} "
         f"(pip install {wasm.PACKAGE})")


def export_web(traced: TracedModel, path: str | os.PathLike[str], *,
               weights: Mapping[str, Any] | None = None, samples: Any = None, letters: str = "",
               webassembly: bool | None = None) -> list[Path]:
    """Writes a model for browsers to a folder: NAME.zt for WebGPU and WebAssembly, ztorch.js to run
    it, and index.html, which contains both and lets users try it.

    Args:
        traced: The result of `model.trace`. If it was traced with an optimizer, the page can train.
        path: The folder.
        weights: Arrays by name that replace the model's own, such as `program.weights`. Default:
            `None`.
        samples: Rows of the model's only input that the page offers, x or (x, y); or a table for
            its pipeline. Default: `None`.
        letters: For a text model, the letter of each number. Default: `""`.
        webassembly: Whether to include code for browsers without WebGPU, which needs the package
            ziglang; None: if it is installed, otherwise with a warning. Default: `None`.

    Returns:
        The paths of the files.

    Examples:
        ```python
        export_web(model.trace(batch_size=1), "page", weights=program.weights)
        ```
    """
    if traced.metadata.whole_axes:
        raise Unsupported(f"model {traced.metadata.name!r} has open axes and mixes positions along "
                          "them, but web pages pad rows: set sizes when the model is loaded, "
                          "such as zt.onnx.load(path, sizes={'time': 64})")
    if webassembly is None and not wasm.available():
        warnings.warn(f"the page runs only on WebGPU: {LACKS}", stacklevel=2)
    with_wasm = wasm.available() if webassembly is None else webassembly
    chosen = (targets.target("webgpu"), *(targets.WASM,) * with_wasm)
    page = PageData(_samples(traced, samples), letters, "" if with_wasm else LACKS)
    return write_web(path, *(_compiled(traced, target, weights or {}) for target in chosen),
                     page=page)


def _compiled(traced: TracedModel, target: Target, weights: Mapping[str, Any]) -> Snapshot:
    compiled = compile_functions(traced.functions, target, traced.metadata.name)
    params = put_states(compiled.spec, compiled.params, weights)
    return Snapshot(compiled.spec, compiled.code, params, traced.metadata)


def _samples(traced: TracedModel, samples: Any) -> Any:
    if samples is None:
        return None
    metadata = traced.metadata
    if list(metadata.input_shape) != [""]:
        raise ConfigError("samples are rows of a single input, but the model takes "
                          f"{', '.join(metadata.input_shape)}; omit samples")
    texts: list[dict[str, str]] = []
    if metadata.pipeline is not None and metadata.pipeline.columns and not isinstance(
            samples, (tuple, np.ndarray)):
        samples, texts = rows_with_texts(metadata.pipeline, samples)
    x, y = samples if isinstance(samples, tuple) else (samples, None)
    return choose(x, y, metadata.input_shape[""], metadata.input_dtype[""], texts)
