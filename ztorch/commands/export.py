"""ztorch export: compiles a model for a device and writes it, also for C, browsers and ONNX."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ztorch.commands import data, loss_options, named_arrays
from ztorch.commands.export_function import export_function
from ztorch.commands.programs import need_trained, take_trained
from ztorch.commands.web_data import page_options
from ztorch.errors import ConfigError
from ztorch.sources.find import find
from ztorch.sources.recipe import Recipe, optimizer

_WITHOUT_PROGRAM = (".keras", ".safetensors")  # suffixes of files of a model, and of its weights


def export(name: str, *, out: str, device: str, batch_size: int | tuple[int, ...] | None,
           sizes: Iterable[tuple[str, tuple[int, ...]]], weights: str | None, random: bool,
           trains: bool, library: bool, optimizer_: str | None, rate: float | None,
           loss: str | None, dtype: str | None, web: bool, samples: str | None,
           shapes: str | None) -> None:
    """Writes a model or a function for a device, which need not be in this machine; or a model as
    an ONNX or Keras file; or the weights of a model."""
    kind = "c" if library else "web" if web else None
    if shapes is not None:
        _need_none({"--batch-size": batch_size, "--sizes": sizes or None, "--weights": weights,
                    "--random": random or None, "--train": trains or None, "--dtype": dtype,
                    "--optimizer": optimizer_, "--lr": rate, "--loss": loss,
                    "--samples": samples}, "a model, and --shapes for a function")
        return export_function(name, shapes, out, device, kind)
    training = {"--loss": loss, "--optimizer": optimizer_, "--lr": rate}
    if not trains and (idle := [o for o, value in training.items() if value is not None]):
        raise ConfigError(f"{idle[0]} is for an artifact that trains: add --train, or omit it")
    if library and web:
        raise ConfigError("--so is for C programs and --web for browsers: export twice")
    if samples is not None and not web:
        raise ConfigError("--samples is for a page: add --web, or omit it")
    kind = _format(kind, out, device, {
        "--device": None if device == "auto" else device, "--batch-size": batch_size,
        "--sizes": sizes or None, "--dtype": dtype, "--train": trains or None})
    recipe = _with_weights(name, weights, random, trains)
    model = recipe.model
    if kind in _WITHOUT_PROGRAM:
        (model.save if kind == ".keras" else model.save_weights)(out)
        files = [Path(out)]
    elif kind == "onnx":
        files = model.export(out, train=trains, batch_size=batch_size, dtype=dtype,
                             sizes=dict(sizes) or None)
    else:
        one_row = web and not trains and not model.declared_batch_size  # as a page shows
        default = 1 if one_row else recipe.batch_size
        files = model.export(
            out, device, format=kind, train=trains, batch_size=batch_size or default,
            dtype=dtype or recipe.dtype, sizes=dict(sizes) or recipe.sizes, decode=recipe.decode,
            **(page_options(recipe, samples) if web else {}),
            **(_training_options(recipe, loss, optimizer_, rate) if trains else {}))
    for file in files:
        print(f"Wrote {file}: {_functions(file, batch_size)}{file.stat().st_size:,} bytes")
    if web:
        print(f"Open {files[-1]} in a browser; it needs no other file")


def _format(kind: str | None, out: str, device: str, options: dict[str, Any]) -> str:
    """The format to write, by the options or the suffix; `options` are those of a compiled
    program."""
    from ztorch.compile.export import chosen_format

    if kind is None:
        data.need_writable(out, (".zt", ".onnx", *_WITHOUT_PROGRAM))
        if out.endswith(_WITHOUT_PROGRAM):
            _need_none(options, f"a compiled program, and {out} holds none")
            return Path(out).suffix
    return chosen_format(out, device, kind)


def _with_weights(name: str, weights: str | None, random: bool, trains: bool) -> Recipe:
    """A model with the requested weights, or an error that tells how to get them."""
    recipe = find(name)
    if weights:
        recipe.model.load_weights(weights)
    if trains and not random:
        take_trained(name, recipe)
    elif not random:
        need_trained(name, recipe, "give its weights: --weights FILE",
                     "write the random ones: --random")
    return recipe


def _need_none(options: dict[str, Any], reason: str) -> None:
    """Raises if one of the options is set."""
    if set_ := [option for option, value in options.items() if value is not None]:
        raise ConfigError(f"{set_[0]} is for {reason}; leave {set_[0]} out")


def _functions(file: Path, batch_size: Any) -> str:
    """The contents of a file, and its device."""
    from ztorch.runtime.load import open_artifact
    from ztorch.runtime.spec import public_functions

    if file.suffix == ".onnx":
        rows = f"batches of {batch_size}" if batch_size else "any batch size"
        return f"predict for {rows}, "
    if file.suffix != ".zt":
        return ""
    targets = [target.spec for target in open_artifact(file).targets]
    return (f"{', '.join(public_functions(targets[0].functions))} for "
            f"{' and '.join(spec.where for spec in targets)}, ")


def _training_options(recipe: Recipe, loss_option: str | None, optimizer_: str | None,
                      rate: Any) -> dict[str, Any]:
    shapes = named_arrays.of_model(recipe.model)
    loss = loss_options.loss(loss_option, shapes) or recipe.loss
    if loss is None:
        raise ConfigError("--train needs a loss: add --loss, such as --loss mse")
    if rate is None and optimizer_ is None:
        rate = recipe.schedule or recipe.learning_rate
    name = recipe.optimizer if optimizer_ is None else optimizer_
    return {"loss": loss, "metrics": recipe.metrics or None, "optimizer": optimizer(name, rate),
            "loss_weights": recipe.loss_weights if loss is recipe.loss else None}
