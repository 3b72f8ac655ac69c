"""Recipes from the models that artifacts declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ztorch.model.declared import model_of_artifact
from ztorch.runtime.buckets import BATCH
from ztorch.sources.recipe import Recipe
from ztorch.training.checkpoint import fit_state

if TYPE_CHECKING:
    from ztorch.program.program import Program
    from ztorch.runtime.load import Artifact
    from ztorch.runtime.snapshot import NamedConfig


def recipe_of(artifact: Artifact, custom: Mapping[str, type] | None = None) -> Recipe:
    """The model that an artifact declares, with its weights, and how it was compiled.

    Args:
        artifact: The artifact.
        custom: User-defined classes that it may name, by name. Default: `None`.
    """
    model = model_of_artifact(artifact, custom)
    program = artifact.manifest.program
    if program.pipeline is not None:
        from ztorch.tabular.pipeline import Pipeline  # few models have one

        model.pipeline = Pipeline.of_record(program.pipeline)
    declaration = program.declaration
    assert declaration is not None  # model_of_artifact raises an error without one
    sizes = dict(program.axes)
    rows = sizes.pop(BATCH, ())
    losses = {name: _as_config(loss) for name, loss in declaration.loss.items() if loss}
    metrics = {name: [_as_config(metric) for metric in declaration.metrics.get(name, ())]
               for name in losses}
    several = bool(losses) and "" not in losses
    generate = artifact.targets[0].spec.functions.get("generate")
    return Recipe(
        model, loss=losses.get("", losses or None),
        loss_weights={n: declaration.loss_weights[n] for n in losses} if several else None,
        metrics=metrics.get("", metrics or ()),
        optimizer=declaration.optimizer and _as_config(declaration.optimizer),
        batch_size=rows if len(rows) > 1 else program.batch_size, sizes=sizes or None,
        decode=generate.inputs["x"].shape[0] if generate else False,
        dtype=program.dtype, seed=program.seed, trained=True)


def compile_as_before(recipe: Recipe, artifact: Artifact) -> None:
    """Arranges that the model of an artifact that trains is compiled in the same way when it is
    first trained or evaluated, and that its optimizer resumes from the artifact's states."""
    training = artifact.manifest.training
    if training is None or recipe.loss is None or recipe.optimizer is None:
        return
    state = training

    def resume(program: Program) -> None:
        states = program.executable.states
        program.executable.restore({
            name: fit_state(name, array, d, states[name], artifact.where)
            for name, (d, array) in artifact.weights.items()
            if name in states and states[name].role != "weight"})
        program.resume(state, state.resumed)

    recipe.model.compile_later({
        "device": "auto", "batch_size": recipe.batch_size, "optimizer": recipe.optimizer,
        "loss": recipe.loss, "metrics": recipe.metrics, "dtype": recipe.dtype, "threads": None,
        "seed": recipe.seed, "loss_weights": recipe.loss_weights, "decode": recipe.decode,
        "matmul_precision": "float32", "sizes": recipe.sizes, "memory_limit": None}, resume)


def _as_config(settings: NamedConfig) -> dict[str, Any]:
    """A loss, a metric or an optimizer as a config for `get`."""
    return {"class_name": settings.name, "config": settings.config}
