"""ztorch show: one stage of compiling a model, as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ztorch.errors import ConfigError, unknown
from ztorch.runtime.buckets import verb_of

if TYPE_CHECKING:
    from ztorch.compile.traced_model import TracedModel


def show(name: str, stage: str, device: str, batch_size: int | tuple[int, ...] | None,
         function: str, loss: str | None, dtype: str | None,
         sizes: Iterable[tuple[str, tuple[int, ...]]] = ()) -> None:
    """Prints a stage of one function of a model, or of the model that an artifact describes."""
    from ztorch.compile.watch import show_plan
    from ztorch.graph import passes
    from ztorch.graph.value import show as show_graph
    from ztorch.ir.text import show as show_kernel
    from ztorch.runtime.devices import Where, resolve

    artifact_target = ""
    if name.endswith(".zt"):
        traced, artifact_target = _trace_artifact(name, batch_size, {
            "--loss": loss, "--dtype": dtype, "--sizes": sizes or None})
    else:
        traced = _trace_model(name, batch_size, function, loss, dtype, dict(sizes))
    if function not in traced.functions:
        raise unknown("function", function, traced.functions)
    functions = {function: traced.functions[function]}
    if stage == "graph":
        print(show_graph(passes.run(functions[function])))
        return
    from ztorch.compile.pipeline import compile_functions
    from ztorch.compile.targeting import target_for

    place = (Where(artifact_target, "", None) if artifact_target and device == "auto" else
             resolve(device, here=False))
    target = target_for(place)
    compiled = compile_functions(functions, target, traced.metadata.name)
    plan = compiled.plans[function]
    if stage == "plan":
        print(show_plan(plan))
    elif stage == "ir":
        print("\n\n".join(show_kernel(step.kernel) for step in plan.steps))
    elif stage == "text":
        print(compiled.text)
    else:
        from ztorch.codegen.assemblers import readable

        print(readable(compiled.text, target))


def _trace_model(name: str, batch_size: int | tuple[int, ...] | None, function: str,
                 loss_option: str | None, dtype: str | None,
                 sizes: dict[str, tuple[int, ...]]) -> TracedModel:
    from ztorch.commands import loss_options, named_arrays
    from ztorch.commands.recipe import find, training_options

    recipe = find(name)
    loss = loss_options.loss(loss_option, named_arrays.of_model(recipe.model)) or recipe.loss
    if loss is None and verb_of(function) in ("train", "evaluate"):
        raise ConfigError(f"{name} names no LOSS, so it has no function {function!r}; add --loss, "
                          "such as --loss mse")
    options = {} if verb_of(function) == "predict" else training_options(recipe, loss)
    return recipe.model.trace(batch_size or recipe.batch_size, decode=recipe.decode, **options,
                              dtype=dtype or "float32", sizes=sizes or None)


def _trace_artifact(path: str, batch_size: int | tuple[int, ...] | None,
                    compile_options: dict[str, Any]) -> tuple[TracedModel, str]:
    """The graphs of the model that an artifact describes, and the target of its code. Options of
    compiling must not be set."""
    from ztorch.commands.retrace import retrace
    from ztorch.runtime.load import open_artifact

    if late := [option for option, value in compile_options.items() if value is not None]:
        raise ConfigError(f"{path} is compiled already, so {late[0]} comes too late; show the "
                          "model it was made from")
    artifact = open_artifact(path)
    traced = retrace(path, artifact.manifest.program, "show", batch_size)
    return traced, artifact.targets[0].spec.target
