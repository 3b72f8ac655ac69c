"""ztorch export: compiles a model for a device and writes it, also for C, browsers and ONNX."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ztorch.commands import data, loss_options, named_arrays
from ztorch.commands.recipe import Recipe, find, optimizer
from ztorch.errors import ConfigError

if TYPE_CHECKING:
    from ztorch.compile.traced_model import TracedModel
    from ztorch.model.model import Model

_FILE_SUFFIXES = (".zt", ".onnx", ".so", ".a", ".c", ".h", ".html", ".js")


def export(name: str, *, out: str, device: str, batch_size: int | tuple[int, ...] | None,
           sizes: Iterable[tuple[str, tuple[int, ...]]], weights: str | None, trains: bool,
           library: bool, optimizer_: str | None, rate: float | None, loss: str | None,
           dtype: str | None, web: bool) -> None:
    """Writes a model for a device, which need not be in this machine; or as an ONNX file."""
    recipe = find(name)
    training = {"--loss": loss, "--optimizer": optimizer_, "--lr": rate}
    if not trains and (idle := [o for o, value in training.items() if value is not None]):
        raise ConfigError(f"{idle[0]} is for an artifact that trains: add --train, or leave it out")
    _check_out(out, device, library, web)
    if weights:
        recipe.model.load_weights(weights)
    if out.endswith(".onnx"):
        if isinstance(batch_size, tuple) or sizes:
            raise ConfigError("an ONNX file takes any batch size, or one; leave --sizes out and "
                              "give --batch-size one number, or write a .zt")
        _export_onnx(recipe.model, out, batch_size, trains, dtype)
        return
    options = _training_options(recipe, loss, optimizer_, rate) if trains else {}
    default = 1 if web and not trains else recipe.batch_size  # a page predicts one row at a time
    traced = recipe.model.trace(batch_size or default, decode=recipe.decode, **options,
                                dtype=dtype or "float32", sizes=dict(sizes) or None)
    if web:
        _export_web(traced, out)
    elif library:
        _export_c(traced, out, device)
    else:
        _export_artifact(traced, out, device)


def _check_out(out: str, device: str, library: bool, web: bool) -> None:
    if library and web:
        raise ConfigError("--so is for C programs and --web for browsers: export twice")
    if not library and not web:
        data.need_writable(out, (".zt", ".onnx"))
    elif not out or out.endswith(_FILE_SUFFIXES):
        raise ConfigError(f"{'--so' if library else '--web'} writes several files to a folder; "
                          f"{out!r} does not look like one")
    if web and device not in ("auto", "webgpu"):
        raise ConfigError(f"--web is for WebGPU; leave --device {device} out")


def _training_options(recipe: Recipe, loss_option: str | None, optimizer_: str | None,
                      rate: Any) -> dict[str, Any]:
    shapes = named_arrays.of_model(recipe.model)
    loss = loss_options.loss(loss_option, shapes) or recipe.loss
    if loss is None:
        raise ConfigError("--train needs a loss: add --loss, such as --loss mse")
    if rate is None and optimizer_ is None:
        rate = recipe.schedule or recipe.learning_rate
    name = recipe.optimizer if optimizer_ is None else optimizer_
    return {"loss": loss, "metrics": recipe.metrics, "optimizer": optimizer(name, rate)}


def _export_artifact(traced: TracedModel, out: str, device: str) -> None:
    from ztorch.artifact.write import write_artifact
    from ztorch.compile.pipeline import compile_functions
    from ztorch.compile.targeting import target_for
    from ztorch.runtime.devices import resolve
    from ztorch.runtime.snapshot import Snapshot
    from ztorch.runtime.spec import offered

    target = target_for(resolve(device, here=False))
    compiled = compile_functions(traced.functions, target, traced.metadata.name)
    spec = compiled.spec
    write_artifact(out, Snapshot(spec, compiled.code, compiled.params, traced.metadata))
    print(f"Wrote {out}: {', '.join(offered(spec.functions))} for {spec.where}, "
          f"{Path(out).stat().st_size:,} bytes")


def _export_c(traced: TracedModel, folder: str, device: str) -> None:
    from ztorch.compile.c_library import export_c

    _print_files(export_c(traced, folder, device=device))


def _export_web(traced: TracedModel, folder: str) -> None:
    from ztorch.compile.web_page import export_web

    _print_files(export_web(traced, folder))
    print(f"Look at it: python -m http.server -d {shlex.quote(folder)}, then "
          "http://localhost:8000")


def _print_files(paths: list[Path]) -> None:
    for path in paths:
        print(f"Wrote {path}: {path.stat().st_size:,} bytes")


def _export_onnx(model: Model, out: str, batch_size: int | None, trains: bool,
                 dtype: str | None) -> None:
    from ztorch.interchange import onnx

    if trains:
        raise ConfigError("an ONNX file only predicts; leave --train out, or write a .zt")
    onnx.save(model, out, batch_size=batch_size, dtype=dtype or "float32")
    rows = f"batches of {batch_size}" if batch_size else "any batch size"
    print(f"Wrote {out}: predict for {rows}, {Path(out).stat().st_size:,} bytes")
