"""Measures kernels before they are compiled, if the user has enabled that."""

from __future__ import annotations

from collections.abc import Mapping

from ztorch.graph.value import Graph
from ztorch.host.choices import choices

SECONDS = 10.0  # time limit of the measurements of one compile


def autotune(functions: Mapping[str, Graph], device: str, name: str,
             threads: int | None = None, precision: str = "float32") -> None:
    """Measures the kernels of functions, if ZTORCH_AUTOTUNE or the config file enables it and the
    device is the CPU of this machine.

    Args:
        functions: The graph of each function, by name.
        device: The device string to compile for.
        name: The name of the program.
        threads: The worker threads of the program. Default `None`: one per core.
        precision: That of its products. Default: `"float32"`.
    """
    if not choices().autotune:
        return
    from ztorch.compile.targeting import target_for
    from ztorch.runtime.devices import resolve
    from ztorch.tune.tuner import tune_functions

    resolved = resolve(device)
    target = target_for(resolved).with_precision(precision)
    if resolved.backend == "cpu" and not resolved.processor and not target.emits_source:
        tune_functions(functions, target, name, SECONDS, threads)
