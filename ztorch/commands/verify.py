"""ztorch verify: compares a device with float64, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ztorch.codegen.targets import target as target_of
from ztorch.compile.pipeline import compile_functions
from ztorch.compile.targeting import target_for
from ztorch.errors import DeviceError, ZtorchError
from ztorch.runtime.buckets import verb_of
from ztorch.runtime.devices import ResolvedDevice, resolve
from ztorch.runtime.start import start
from ztorch.sources.find import find, is_artifact
from ztorch.sources.recipe import Recipe, training_options
from ztorch.terminal.text_table import aligned_table
from ztorch.terminal.work_line import working
from ztorch.verify.compare import Check, compare
from ztorch.verify.probes import Subject

DEFAULT_ROWS = 8  # largest batch unless the user passes --batch-size


def verify(name: str, device: str, batch_size: int | tuple[int, ...] | None,
           sizes: Iterable[tuple[str, tuple[int, ...]]], dtype: str | None, steps: int,
           seed: int) -> None:
    """Prints the table of comparisons, and raises an error if a layer diverges."""
    with working(f"verify {name}"):
        subject, checks = _checked(name, device, batch_size, sizes, dtype, steps, seed)
    print(f"{subject.name} on {subject.executable.device}, against float64")
    print(aligned_table([("", "layer", "worst error", "bound", ""), *(
        (c.part, c.layer, f"{c.error:.1e}", f"{c.bound:.1e}", "" if c.passed else "DIVERGES")
        for c in checks)]))
    if failed := next((c for c in checks if not c.passed), None):
        raise ZtorchError(_explanation(name, subject, checks, failed))
    print(f"verified: {len(checks)} comparisons")


def _checked(name: str, device: str, batch_size: int | tuple[int, ...] | None,
             sizes: Iterable[tuple[str, tuple[int, ...]]], dtype: str | None, steps: int,
             seed: int) -> tuple[Subject, list[Check]]:
    """The subject of the comparison, and all comparisons."""
    as_written = device == "auto" and not (batch_size or sizes or dtype)
    subject = of_artifact(name) if is_artifact(name) and as_written else of_recipe(
        find(name), device, batch_size, dtype, dict(sizes))
    return subject, list(compare(subject, steps, seed))


def _explanation(name: str, subject: Subject, checks: list[Check], failed: Check) -> str:
    """The message for the first difference: its size, and where to look."""
    device = subject.executable.device
    layers_passed = any(c.part == failed.part and c.layer.startswith("layer ") for c in checks)
    in_layer = failed.layer.startswith("layer ")
    if is_artifact(name) and layers_passed and not in_layer:
        advice = ("all layers are right when they are compiled again, so the code in "
                  f"{name} is faulty: export it again")
    else:
        advice = (f"its kernel is {failed.kernel}. `ztorch show {name} --device {device} "
                  "--stage text` prints it")
    return (f"{subject.name} on {device} diverges first in {failed.layer} ({failed.part}): an "
            f"error of {failed.error:.1e}, and rounding explains {failed.bound:.1e}; {advice}")


def of_recipe(recipe: Recipe, device: str, batch_size: int | tuple[int, ...] | None,
              dtype: str | None = None,
              sizes: dict[str, tuple[int, ...]] | None = None) -> Subject:
    """The model of a recipe, compiled for a device."""
    rows = batch_size or recipe.model.declared_batch_size or min(
        _largest(recipe.batch_size), DEFAULT_ROWS)
    traced = recipe.model.trace(rows, **training_options(recipe, recipe.loss),
                                dtype=dtype or recipe.dtype, sizes=sizes or recipe.sizes)
    resolved = resolve(device)
    if resolved.ordinal is None:
        raise DeviceError(f"{device} names a chip; to verify takes a device, such as "
                          f"{resolved.backend}:0")
    target = target_for(resolved)
    functions = {n: g for n, g in traced.functions.items() if verb_of(n) != "evaluate"}
    compiled = compile_functions(functions, target, recipe.model.name)
    executable = start(compiled.spec, compiled.code, compiled.params, None, resolved.ordinal)
    return Subject(recipe.model.name, traced, target, resolved.ordinal, executable, compiled.plans)


def _largest(sizes: int | tuple[int, ...]) -> int:
    return sizes if isinstance(sizes, int) else max(sizes)


def of_artifact(path: str) -> Subject:
    """An artifact with its own code, and the graphs of the model that it declares."""
    from ztorch.program.program import load

    recipe = find(path)
    program = load(path)
    traced = recipe.model.trace(recipe.batch_size, **training_options(recipe, recipe.loss),
                                dtype=recipe.dtype, sizes=recipe.sizes, decode=recipe.decode,
                                seed=recipe.seed)
    executable: Any = program.executable
    target, ordinal = target_of(executable.spec.target), None
    if target.limits.grid is not None:
        info = executable.opened_device.info
        target, ordinal = target.on_device(dict(info.limits)), info.ordinal
    else:
        target = target_for(ResolvedDevice(target.name, "cpu", 0))
    functions = {n: g for n, g in traced.functions.items() if n in executable.functions}
    compiled = compile_functions(functions, target, program.name)
    return Subject(program.name, traced, target, ordinal, executable, compiled.plans)
