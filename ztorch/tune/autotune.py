"""Measures the kernels that are about to be compiled, if the user has chosen that."""

from __future__ import annotations

from collections.abc import Mapping

from ztorch.graph.value import Graph
from ztorch.host.choices import choices

SECONDS = 10.0  # that a compile may measure for


def autotune(functions: Mapping[str, Graph], device: str, name: str,
             threads: int | None = None) -> None:
    """Measures the kernels of functions, where ZTORCH_AUTOTUNE or the config file asks for it and
    the device is this machine's processor.

    Args:
        functions: The graph of each function, by name.
        device: The device that they will be compiled for.
        name: The name of the program.
        threads: The worker threads of the program; None: one per core. Default: `None`.
    """
    if not choices().autotune:
        return
    from ztorch.compile.targeting import target_for
    from ztorch.runtime.devices import resolve
    from ztorch.tune.tuner import tune_functions

    place = resolve(device)
    target = target_for(place)
    if place.backend == "cpu" and not place.processor and not target.emits_source:
        tune_functions(functions, target, name, SECONDS, threads)
