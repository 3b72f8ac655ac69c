"""ztorch export and ztorch run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ztorch.commands import aims, data, named
from ztorch.commands.artifacts import need_artifact
from ztorch.commands.recipe import find, optimizer
from ztorch.errors import ConfigError

if TYPE_CHECKING:
    from ztorch.model.model import Model


def export(name: str, *, out: str, device: str, batch_size: int | None, weights: str | None,
           trains: bool, library: bool, optimizer_: str | None, rate: float | None,
           loss: str | None, dtype: str | None, web: bool) -> None:
    """Compiles a model for a device, which need not be here, and writes it; or writes what it
    predicts as an ONNX file."""
    from ztorch.artifact.write import write_artifact
    from ztorch.compile.c_library import export_c
    from ztorch.compile.pipeline import compile_functions, target_for
    from ztorch.compile.web_page import export_web
    from ztorch.runtime.devices import resolve
    from ztorch.runtime.snapshot import Snapshot
    from ztorch.runtime.spec import offered

    recipe = find(name)
    given = {"--loss": loss, "--optimizer": optimizer_, "--lr": rate}
    if not trains and (idle := [option for option, value in given.items() if value is not None]):
        raise ConfigError(f"{idle[0]} is for an artifact that trains: add --train, or leave it out")
    if library and web:
        raise ConfigError("--so is for C programs and --web for browsers: export twice")
    if not library and not web:
        data.writable(out, (".zt", ".onnx"))
    elif not out or out.endswith((".zt", ".onnx", ".so", ".a", ".c", ".h", ".html", ".js")):
        raise ConfigError(f"{'--so' if library else '--web'} writes several files to a folder; "
                          f"{out!r} does not look like one")
    if web and device not in ("auto", "webgpu"):
        raise ConfigError(f"--web is for WebGPU; leave --device {device} out")
    if weights:
        recipe.model.load_weights(weights)
    if out.endswith(".onnx"):
        _export_onnx(recipe.model, out, batch_size, trains, dtype)
        return
    how: dict[str, Any] = {}
    if trains:
        chosen_loss = aims.loss(loss, named.of_model(recipe.model)) or recipe.loss
        if chosen_loss is None:
            raise ConfigError("--train needs a loss: add --loss, such as --loss mse")
        if rate is None and optimizer_ is None:
            rate = recipe.schedule or recipe.learning_rate
        how = {"loss": chosen_loss, "metrics": recipe.metrics, "optimizer": optimizer(
            recipe.optimizer if optimizer_ is None else optimizer_, rate)}
    usual = 1 if web and not trains else recipe.batch_size  # who tries a page gives it one row
    traced = recipe.model.trace(batch_size or usual, decode=recipe.decode, **how,
                                dtype=dtype or "float32")
    if library or web:
        written = export_web(traced, out) if web else export_c(traced, out, device=device)
        for path in written:
            print(f"Wrote {path}: {path.stat().st_size:,} bytes")
        if web:
            print(f"Look at it: python -m http.server -d {shlex.quote(out)}, then "
                  "http://localhost:8000")
        return
    compiled_for = target_for(resolve(device, here=False))
    made = compile_functions(traced.functions, compiled_for, recipe.model.name)
    write_artifact(out, Snapshot(made.spec, made.code, made.params, traced.metadata))
    print(f"Wrote {out}: {', '.join(offered(made.spec.functions))} for {made.spec.where}, "
          f"{Path(out).stat().st_size:,} bytes")


def _export_onnx(model: Model, out: str, batch_size: int | None, trains: bool,
                 dtype: str | None) -> None:
    from ztorch.interchange import onnx

    if trains:
        raise ConfigError("an ONNX file only predicts; leave --train out, or write a .zt")
    onnx.save(model, out, batch_size=batch_size, dtype=dtype or "float32")
    rows = f"batches of {batch_size}" if batch_size else "any batch size"
    print(f"Wrote {out}: predict for {rows}, {Path(out).stat().st_size:,} bytes")


def run(artifact: str, source: str, out: str | None, classes: bool, threads: int | None) -> None:
    """Predicts from a file of rows."""
    from ztorch.program.program import load

    data.writable(out, (".npy", ".csv", ".txt", ".npz"))
    need_artifact(artifact)
    program = load(artifact, threads)
    names = list(named.of_program(program).outputs)
    if names == [""] and out is not None and out.endswith(".npz"):
        raise ConfigError(f"cannot write {out}: the only output has no name; write it to .npy or "
                          ".csv")
    y = program.predict(data.inputs(source, program))
    outputs = [y] if names == [""] else list(y.values()) if isinstance(y, dict) else y
    outputs = [one.argmax(-1) if classes else one for one in outputs]
    if names == [""]:
        data.write(out, outputs[0])
    else:
        named.write(out, dict(zip(names, outputs, strict=True)))
    if out:
        print(f"Wrote {out}: {len(outputs[0])} rows")
