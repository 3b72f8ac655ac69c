"""Traces the model that a command names, and finds the device to compile it for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztorch.errors import ConfigError, unknown
from ztorch.runtime.buckets import verb_of
from ztorch.sources.find import find, is_artifact
from ztorch.sources.recipe import training_options

if TYPE_CHECKING:
    from ztorch.compile.traced_model import TracedModel
    from ztorch.runtime.devices import ResolvedDevice


def traced_model(name: str, batch_size: int | tuple[int, ...] | None, function: str,
                 loss_option: str | None, dtype: str | None,
                 sizes: dict[str, tuple[int, ...]]) -> TracedModel:
    """The model, traced with the options that the function needs."""
    from ztorch.commands import loss_options, named_arrays

    recipe = find(name)
    loss = loss_options.loss(loss_option, named_arrays.of_model(recipe.model)) or recipe.loss
    if loss is None and verb_of(function) in ("train", "evaluate"):
        raise ConfigError(f"{name} names no LOSS, so it has no function {function!r}; add --loss, "
                          "such as --loss mse")
    options = {} if verb_of(function) == "predict" else training_options(recipe, loss)
    traced = recipe.model.trace(batch_size or recipe.batch_size, decode=recipe.decode, **options,
                                dtype=dtype or recipe.dtype, sizes=sizes or recipe.sizes)
    if function not in traced.functions:
        raise unknown("function", function, traced.functions)
    return traced


def device_of(name: str, device: str) -> ResolvedDevice:
    """The device to compile for; by default, the device of the artifact's code."""
    from ztorch.runtime.devices import ResolvedDevice, resolve
    from ztorch.runtime.load import open_artifact

    if device == "auto" and is_artifact(name):
        return ResolvedDevice(open_artifact(name).targets[0].spec.target, "", None)
    return resolve(device, must_be_local=False)
