"""How a kernel, or any function of tensors, is scheduled on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ztorch.arguments import checked
from ztorch.arrays.exporting import call_trace, results_of
from ztorch.arrays.placement import default_device
from ztorch.compile.explained import scheduled
from ztorch.graph.value import Graph, Value


@checked
def explain(function: Callable[..., Any], *arguments: Any, device: str | None = None,
            sizes: Mapping[str, int] | None = None, **named: Any) -> str:
    """Says which kernels a function of tensors becomes on a device: the schedule of each, what is
    fused in it, and why it is not one with those that it reads from. Nothing is run.

    Args:
        function: Kernels and ops on tensors, a compiled function, or one that `zt.grad` gave.
        *arguments: The arguments of the function, each as an array or tensor, or as a type, such as
            `"f32[64, 1024]"`. Numbers and other strings are compiled in.
        device: The device, which need not be in this machine, such as `"cuda:sm_90"`. `None` means
            the default one. Default: `None`.
        sizes: The sizes that names in types stand for. Default: `None`.
        **named: Arguments of the function by name.

    Returns:
        A line for each kernel, and below it what there is to say of it.

    Raises:
        ConfigError: An argument has no type.

    Examples:
        >>> import ztorch as zt
        >>> print(zt.explain(lambda x: (x * 2.0 + 1.0).sum(), "f32[1000]", device="cpu:avx2"))
        k0_sum_f32_8 on avx2: rows lanes(8) sums(4) columns(1)
            fuses mul, add, sum
    """
    name = getattr(function, "__name__", "function").strip("<>")
    trace, names = call_trace(function, name, arguments, named, sizes)
    states = [f"state{k}" for k in range(len(trace.cells.read))]
    return "\n".join(schedules_of(name, results_of(name, trace, [*names, *states]), device))


def schedules_of(name: str, results: Sequence[Value], on: str | None = None) -> list[str]:
    """A sentence for each kernel that some values become, and for each hint that one does not
    follow.

    Args:
        name: Of the program.
        results: The values.
        on: The device. `None` means the default. Default: `None`.
    """
    graph = Graph({f"y{k}": v for k, v in enumerate(results)})
    return scheduled(name, graph, on or default_device())
