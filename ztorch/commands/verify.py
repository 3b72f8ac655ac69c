"""ztorch verify: does a device compute what a model means, layer by layer?"""

from __future__ import annotations

from typing import Any

from ztorch.codegen.targets import TARGETS
from ztorch.commands.artifacts import retraced
from ztorch.commands.look import table
from ztorch.commands.recipe import Recipe, find, optimizer
from ztorch.compile.pipeline import compile_functions, target_for
from ztorch.errors import ConfigError, DeviceError, ZtorchError
from ztorch.runtime.devices import Where, resolve
from ztorch.runtime.start import start
from ztorch.verify.compare import compared
from ztorch.verify.probes import Subject


def verify(name: str, device: str, batch_size: int | None, dtype: str | None, steps: int,
           seed: int) -> None:
    """Prints the table, and fails where a layer diverges."""
    if dtype is not None and name.endswith(".zt"):
        raise ConfigError(f"{name} is compiled already, so --dtype comes too late; verify the "
                          "model it was made from")
    subject = of_artifact(name, device, batch_size) if name.endswith(".zt") else of_recipe(
        find(name), device, batch_size, dtype)
    checks = list(compared(subject, steps, seed))
    print(f"{subject.name} on {subject.run.device}, against float64")
    print(table([("", "layer", "worst error", "bound", ""), *(
        (c.part, c.layer, f"{c.error:.1e}", f"{c.bound:.1e}", "" if c.fine else "DIVERGES")
        for c in checks)]))
    wrong = next((c for c in checks if not c.fine), None)
    if wrong is not None:
        probed = any(c.part == wrong.part and c.layer.startswith("layer ") for c in checks)
        damaged = name.endswith(".zt") and probed and not wrong.layer.startswith("layer ")
        raise ZtorchError(f"{subject.name} on {subject.run.device} diverges first in "
                          f"{wrong.layer} ({wrong.part}): an error of {wrong.error:.1e}, and "
                          f"rounding explains {wrong.bound:.1e}; " + (
                              "all layers are right when they are compiled again, so the code in "
                              f"{name} is what is wrong: export it again" if damaged else
                              f"its kernel is {wrong.kernel}. `ztorch show {name} --device "
                              f"{subject.run.device} --stage text` prints it"))
    print(f"verified: {len(checks)} comparisons")


def of_recipe(recipe: Recipe, device: str, batch_size: int | None,
              dtype: str | None = None) -> Subject:
    """The model of a recipe, compiled for a device."""
    how: dict[str, Any] = {} if recipe.loss is None else {
        "loss": recipe.loss, "metrics": recipe.metrics,
        "optimizer": optimizer(recipe.optimizer, recipe.learning_rate)}
    traced = recipe.model.trace(batch_size or min(recipe.batch_size, 8), **how,
                                dtype=dtype or "float32")
    where = resolve(device)
    if where.ordinal is None:
        raise DeviceError(f"{device} names a chip; to verify takes a device, such as "
                          f"{where.backend}:0")
    target = target_for(where)
    made = compile_functions(traced.functions, target, recipe.model.name)
    run = start(made.spec, made.code, made.params, None, where.ordinal)
    return Subject(recipe.model.name, traced, target, where.ordinal, run, made.plans)


def of_artifact(path: str, device: str, batch_size: int | None) -> Subject:
    """The artifact's own code, and graphs traced from the description that it holds."""
    from ztorch.program.program import load

    if batch_size is not None or device != "auto":
        raise ConfigError(f"{path} is compiled already, so --device and --batch-size come too "
                          "late; verify the model it was made from")
    program = load(path)
    traced = retraced(path, program.metadata, "verify")
    run: Any = program.executable
    target, ordinal = TARGETS[run.spec.target], None
    if target.limits.grid is not None:
        info = run.opened_device.info
        target, ordinal = target.on_device(dict(info.limits)), info.ordinal
    else:
        target = target_for(Where(target.name, "cpu", 0))
    functions = {n: g for n, g in traced.functions.items() if n in run.functions}
    made = compile_functions(functions, target, program.name)
    return Subject(program.name, traced, target, ordinal, run, made.plans)
