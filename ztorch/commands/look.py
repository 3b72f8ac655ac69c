"""ztorch inspect, show and devices: what there is, in words."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ztorch.errors import ConfigError, unknown
from ztorch.runtime.spec import offered

if TYPE_CHECKING:
    from ztorch.model.trace import Functions
    from ztorch.runtime.load import Artifact

STAGES = ("graph", "plan", "ir", "text")


def table(rows: Iterable[tuple[str, ...]], indent: str = "") -> str:
    """Rows with their columns in line.

    >>> print(table([("a", "1"), ("long", "22")]))
    a     1
    long  22
    """
    rows = list(rows)
    wide = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))] if rows else []
    return "\n".join(indent + "  ".join(c.ljust(w) for c, w in zip(row, wide, strict=True)).rstrip()
                     for row in rows)


# -- inspect -------------------------------------------------------------------------------------


def inspect(path: str, as_json: bool) -> None:
    """What an artifact is and needs, without running it."""
    from ztorch.commands.artifacts import need_artifact
    from ztorch.runtime.load import open_artifact

    need_artifact(path)
    artifact = open_artifact(path)
    print(json.dumps(_data(artifact), indent=2) if as_json else _page(artifact))


def _data(artifact: Artifact) -> dict[str, Any]:
    training = artifact.manifest.training
    return {
        "file": artifact.where, "format_version": artifact.manifest.version,
        "ztorch": artifact.manifest.ztorch,
        "members": artifact.sizes,
        "targets": [{**t.spec.to_json(), "code_bytes": len(t.code),
                     "memory_bytes": t.spec.memory_bytes, "runs_here": not t.refusal()}
                    for t in artifact.targets],
        "program": artifact.manifest.program.to_json(),
        "training": training and training.to_json(),
    }


def _page(artifact: Artifact) -> str:
    spec = artifact.targets[0].spec
    functions = offered(spec.functions).values()
    weights = [s for s in spec.states.values() if s.role == "weight"]
    others = [s for s in spec.states.values() if s.role != "weight" and not s.derived]
    lines = [f"{spec.name}: {artifact.where}, {sum(artifact.sizes.values()):,} bytes, format "
             f"{artifact.manifest.version}, written by ztorch {artifact.manifest.ztorch}"]
    for t in artifact.targets:
        lines += ["", f"For {t.spec.where}, which "
                  + (f"does not run here: the code {t.refusal()}" if t.refusal() else "runs here"),
                  f"  needs    {', '.join(t.spec.needs) or 'nothing special'}",
                  f"  code     {len(t.code):,} bytes, {len(t.spec.kernels)} kernels",
                  f"  memory   {t.spec.memory_bytes:,} bytes, of them arena {t.spec.arena_bytes:,}"]
    lines += ["", "Functions", table((
        (f.name, *(", ".join(f"{s.name} {_shape(s.shape)} {s.dtype}" for s in side.values())
                   for side in (f.inputs, f.outputs))) for f in functions), "  ")]
    lines += ["", f"Weights, {sum(s.nbytes for s in weights):,} bytes", table((
        (s.name, _shape(s.shape), str(s.dtype), "" if s.trainable else "frozen")
        for s in weights), "  ")]
    if others:
        lines += [f"  and {len(others)} states of training, {sum(s.nbytes for s in others):,} "
                  "bytes"]
    lines += ["", "Kernels, with their estimated part of the work"]
    for f in functions:
        whole = sum(cycles for _, cycles in f.kernels) or 1.0
        lines.append(table(((f.name, name, f"{cycles / whole:.0%}") for name, cycles in f.kernels),
                           "  "))
    if training := artifact.manifest.training:
        last = ", ".join(f"{k} {v[-1]:.4g}" for k, v in training.history.history.items()
                         if v and math.isfinite(v[-1]))
        trained = f"Trained for {training.passes} epochs"
        lines += ["", f"{trained}: {last}" if last else trained]
    lines += ["", "Members", table(((n, f"{size:,}") for n, size in artifact.sizes.items()), "  ")]
    return "\n".join(lines)


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


# -- show ----------------------------------------------------------------------------------------


def show(name: str, stage: str, device: str, batch_size: int | None, function: str,
         loss: str | None, dtype: str | None) -> None:
    """One stage of compiling one function of a model, or of the model that an artifact holds."""
    from ztorch.compile.watch import show_plan
    from ztorch.graph import passes
    from ztorch.graph.value import show as show_graph
    from ztorch.ir.text import show as show_kernel
    from ztorch.runtime.devices import Where, resolve

    own = ""
    if name.endswith(".zt"):
        traced, own = _of_artifact(name, batch_size, {"--loss": loss, "--dtype": dtype})
    else:
        traced = _of_model(name, batch_size, function, loss, dtype)
    if function not in traced.functions:
        raise unknown("function", function, traced.functions)
    chosen = {function: traced.functions[function]}
    if stage == "graph":
        print(show_graph(passes.run(chosen[function])))
        return
    from ztorch.compile.pipeline import compile_functions, target_for

    where = Where(own, "", None) if own and device == "auto" else resolve(device, here=False)
    for_device = target_for(where)
    made = compile_functions(chosen, for_device, traced.metadata.name)
    plan = made.plans[function]
    if stage == "plan":
        print(show_plan(plan))
    elif stage == "ir":
        print("\n\n".join(show_kernel(step.kernel) for step in plan.steps))
    elif stage == "text":
        print(made.text)
    else:
        from ztorch.codegen.assemblers import readable

        print(readable(made.text, for_device))


def _of_model(name: str, batch_size: int | None, function: str, given: str | None,
              dtype: str | None) -> Functions:
    from ztorch.commands import aims, named
    from ztorch.commands.recipe import find, optimizer

    recipe = find(name)
    loss = aims.loss(given, named.of_model(recipe.model)) or recipe.loss
    if loss is None and function in ("train", "evaluate"):
        raise ConfigError(f"{name} names no LOSS, so it has no function {function!r}; add --loss, "
                          "such as --loss mse")
    how = {} if function == "predict" or loss is None else {
        "loss": loss, "metrics": recipe.metrics,
        "optimizer": optimizer(recipe.optimizer, recipe.learning_rate)}
    return recipe.model.trace(batch_size or recipe.batch_size, decode=recipe.decode, **how,
                              dtype=dtype or "float32")


def _of_artifact(path: str, batch_size: int | None,
                 late: dict[str, str | None]) -> tuple[Functions, str]:
    """The graphs of the model that it describes, and the target of its code."""
    from ztorch.commands.artifacts import retraced
    from ztorch.runtime.load import open_artifact

    if fixed := [option for option, value in late.items() if value is not None]:
        raise ConfigError(f"{path} is compiled already, so {fixed[0]} comes too late; show the "
                          "model it was made from")
    artifact = open_artifact(path)
    return (retraced(path, artifact.manifest.program, "show", batch_size),
            artifact.targets[0].spec.target)


# -- devices -------------------------------------------------------------------------------------


def list_devices(as_json: bool) -> None:
    """The devices of this machine, and why the others are none."""
    from ztorch.runtime.devices import devices

    found = devices()
    if as_json:
        print(json.dumps([d.to_json() for d in found], indent=2))
        return
    here = [d for d in found if d.available]
    for d in here:
        size = f"{d.memory_bytes / 2**30:.1f} GiB"
        if not d.levels:
            chip, driver = (f", {what}" if what else "" for what in (d.chip, d.driver))
            print(f"{d.id}: {d.name} ({d.kind}{chip}), {size}{driver}")
            continue
        print(f"{d.id}: {d.name}, {d.cores} cores, {d.threads} threads, {size}")
        best = next((v.name for v in reversed(d.levels) if v.available), None)
        print(table(((f"{d.id}:{v.name}", ("yes" + ", the best" * (v.name == best))
                      if v.available else f"no: {v.reason}") for v in d.levels), "  "))
    if absent := [d for d in found if not d.available]:
        print("Not here:")
        print(table(((d.id, d.reason) for d in absent), "  "))
