"""ztorch show: one stage of compiling a model, as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ztorch.errors import ConfigError, unknown
from ztorch.runtime.buckets import verb_of
from ztorch.sources.find import find, is_artifact
from ztorch.sources.recipe import training_options
from ztorch.work_line import working

if TYPE_CHECKING:
    from ztorch.compile.traced_model import TracedModel
    from ztorch.runtime.devices import Where


def show(name: str, stage: str, device: str, batch_size: int | tuple[int, ...] | None,
         function: str, loss: str | None, dtype: str | None,
         sizes: Iterable[tuple[str, tuple[int, ...]]] = ()) -> None:
    """Prints a stage of one function of a model, or of the model that an artifact declares."""
    with working(f"show {name}"):
        traced = _trace(name, batch_size, function, loss, dtype, dict(sizes))
        text = _text(name, traced, function, stage, device)
    print(text)


def _text(name: str, traced: TracedModel, function: str, stage: str, device: str) -> str:
    """The stage of a function as text."""
    from ztorch.compile.watch import show_plan
    from ztorch.graph import passes
    from ztorch.graph.value import show as show_graph
    from ztorch.ir.text import show as show_kernel

    if function not in traced.functions:
        raise unknown("function", function, traced.functions)
    functions = {function: traced.functions[function]}
    if stage == "graph":
        return show_graph(passes.run(functions[function]))
    from ztorch.compile.pipeline import compile_functions
    from ztorch.compile.targeting import target_for

    target = target_for(_place(name, device))
    compiled = compile_functions(functions, target, traced.metadata.name)
    plan = compiled.plans[function]
    if stage == "plan":
        return show_plan(plan)
    if stage == "ir":
        return "\n\n".join(show_kernel(step.kernel) for step in plan.steps)
    if stage == "text":
        return compiled.text
    from ztorch.codegen.assemblers import readable

    return readable(compiled.text, target)


def _trace(name: str, batch_size: int | tuple[int, ...] | None, function: str,
                 loss_option: str | None, dtype: str | None,
                 sizes: dict[str, tuple[int, ...]]) -> TracedModel:
    from ztorch.commands import loss_options, named_arrays

    recipe = find(name)
    loss = loss_options.loss(loss_option, named_arrays.of_model(recipe.model)) or recipe.loss
    if loss is None and verb_of(function) in ("train", "evaluate"):
        raise ConfigError(f"{name} names no LOSS, so it has no function {function!r}; add --loss, "
                          "such as --loss mse")
    options = {} if verb_of(function) == "predict" else training_options(recipe, loss)
    return recipe.model.trace(batch_size or recipe.batch_size, decode=recipe.decode, **options,
                              dtype=dtype or recipe.dtype, sizes=sizes or recipe.sizes)


def _place(name: str, device: str) -> Where:
    """Where to compile for: by default, an artifact for what its code is for."""
    from ztorch.runtime.devices import Where, resolve
    from ztorch.runtime.load import open_artifact

    if device == "auto" and is_artifact(name):
        return Where(open_artifact(name).targets[0].spec.target, "", None)
    return resolve(device, here=False)
