"""ztorch inspect: the contents of an artifact, or the layers of another model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ztorch.runtime.spec import public_functions
from ztorch.sources.find import find, is_artifact
from ztorch.terminal.progress import numbers_of
from ztorch.terminal.text_table import aligned_table
from ztorch.terminal.work_line import working

MAX_CLASSES = 20  # number of classes that are listed

if TYPE_CHECKING:
    from ztorch.runtime.load import Artifact
    from ztorch.runtime.spec import FunctionSpec
    from ztorch.tabular.record import PipelineRecord


def inspect(path: str, as_json: bool) -> None:
    """Prints an artifact's contents and requirements, without running it."""
    from ztorch.runtime.load import open_artifact

    if not is_artifact(path):
        _print_model(path, as_json)
        return
    with working(f"inspect {path}"):
        artifact = open_artifact(path)
        text = json.dumps(_as_dict(artifact), indent=2) if as_json else _as_text(artifact)
    print(text)


def _print_model(name: str, as_json: bool) -> None:
    """Prints a model that is not compiled: its layers and options of training."""
    recipe = find(name)
    if as_json:
        print(recipe.model.to_json(indent=2))
        return
    recipe.model.summary()
    properties = {"data": recipe.data, "loss": recipe.loss, "metrics": recipe.metrics,
                  "optimizer": recipe.optimizer, "batch size": recipe.batch_size, "bar": recipe.bar}
    print(aligned_table(((key, str(value)) for key, value in properties.items() if value), "  "))


def _as_dict(artifact: Artifact) -> dict[str, Any]:
    manifest = artifact.manifest
    return {
        "file": artifact.where, "format_version": manifest.version, "ztorch": manifest.ztorch,
        "members": artifact.sizes,
        "targets": [{**t.spec.to_json(), "code_bytes": len(t.code),
                     "memory_bytes": t.spec.memory_bytes, "runs_here": not t.refusal()}
                    for t in artifact.targets],
        "program": manifest.program.to_json(),
        "training": manifest.training and manifest.training.to_json(),
    }


def _as_text(artifact: Artifact) -> str:
    lines = [*_targets(artifact), *_interface(artifact), *_states(artifact), *_kernels(artifact),
             *_training(artifact)]
    members = aligned_table(((n, f"{size:,}") for n, size in artifact.sizes.items()), "  ")
    return "\n".join([*lines, "", "Members", members])


def _targets(artifact: Artifact) -> list[str]:
    """The file, and the code for each target."""
    name = artifact.targets[0].spec.name
    lines = [f"{name}: {artifact.where}, {sum(artifact.sizes.values()):,} bytes, format "
             f"{artifact.manifest.version}, written by ztorch {artifact.manifest.ztorch}"]
    for t in artifact.targets:
        lines += ["", f"For {t.spec.where}, which "
                  + (f"does not run here: the code {t.refusal()}" if t.refusal() else "runs here"),
                  f"  needs    {', '.join(t.spec.needs) or 'nothing special'}",
                  f"  code     {len(t.code):,} bytes, {len(t.spec.kernels)} kernels",
                  f"  memory   {t.spec.memory_bytes:,} bytes, of them arena {t.spec.arena_bytes:,}"]
    return lines


def _interface(artifact: Artifact) -> list[str]:
    """Sizes, functions, and the meaning of inputs and outputs."""
    lines = []
    program = artifact.manifest.program
    if program.axes:
        lines += ["", "Sizes, of which each call uses the smallest that fits", aligned_table((
            (name, ", ".join(map(str, sizes))) for name, sizes in program.axes.items()), "  ")]
    lines += ["", "Functions", aligned_table((
        (f.name, *(", ".join(f"{s.name} {_shape(s.shape)} {s.dtype}" for s in side.values())
                   for side in (f.inputs, f.outputs))) for f in _functions(artifact)), "  ")]
    for name, texts in program.texts.items():
        if texts is not None:
            lines += ["", f"{f'Input {name!r}' if name else 'The input'} holds text, which "
                      f"{texts.name} reads"]
    return lines + (_pipeline(program.pipeline) if program.pipeline else [])


def _states(artifact: Artifact) -> list[str]:
    """The weights, and the size of the other states."""
    states = artifact.targets[0].spec.states.values()
    weights = [s for s in states if s.role == "weight"]
    others = [s for s in states if s.role != "weight" and not s.derived]
    lines = []
    if weights:
        lines += ["", f"Weights, {sum(s.nbytes for s in weights):,} bytes", aligned_table((
            (s.name, _shape(s.shape), str(s.dtype), "" if s.trainable else "frozen")
            for s in weights), "  ")]
    if others:
        lines += [f"  and {len(others)} states of training, {sum(s.nbytes for s in others):,} "
                  "bytes"]
    return lines


def _kernels(artifact: Artifact) -> list[str]:
    """The kernels of each function."""
    lines = ["", "Kernels, with their estimated share of the work"]
    for f in _functions(artifact):
        total = sum(cycles for _, cycles in f.kernels) or 1.0
        lines.append(aligned_table(
            ((f.name, name, f"{cycles / total:.0%}") for name, cycles in f.kernels), "  "))
    for f in _functions(artifact):
        if f.recomputed:
            lines += ["", f"Kernels of {f.name} that run again, to keep less in memory",
                      *(f"  {name}" for name in f.recomputed)]
    return lines


def _training(artifact: Artifact) -> list[str]:
    """The number of epochs, and the last scores."""
    training = artifact.manifest.training
    if training is None:
        return []
    scores = {k: v[-1] for k, v in training.history.history.items() if v}
    last = ", ".join(f"{k} {v:.4g}" for k, v in numbers_of(scores).items() if math.isfinite(v))
    trained = f"Trained for {training.passes} epochs"
    return ["", f"{trained}: {last}" if last else trained]


def _functions(artifact: Artifact) -> Iterable[FunctionSpec]:
    return public_functions(artifact.targets[0].spec.functions).values()


def _pipeline(record: PipelineRecord) -> list[str]:
    """The meaning of columns and classes."""
    lines = []
    if record.columns:
        sizes = [(c, len(c.features)) for c in record.columns]
        lines += ["", "Columns", aligned_table((
            (c.name, c.kind, c.unit, f"{n} feature{'s' * (n != 1)}") for c, n in sizes), "  ")]
    if record.encoder:
        lines += ["", f"Prepared by {record.encoder.name}"]
    if record.target:
        classes = record.target.classes
        shown = ", ".join(classes[:MAX_CLASSES]) + (", ..." if len(classes) > MAX_CLASSES else "")
        lines += ["", f"Predicts {record.target.name or 'one of'}: "
                  + (shown or f"a quantity {record.target.unit}".rstrip())]
    return lines


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
