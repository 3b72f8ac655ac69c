"""Explains how a kernel, or any function of tensors, is scheduled on a device."""

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
    """Lists the kernels that a function compiles to on a device: the schedule of each, the ops
    fused into it, and the reason why it is not fused with the kernels that it reads from. Nothing
    is run.

    Args:
        function: Kernels and ops on tensors, a compiled function, or a result of `zt.grad`.
        *arguments: The arguments of the function, each as an array or tensor, or as a type, such as
            `"f32[64, 1024]"`. Numbers and other strings are compiled in.
        device: The device, such as `"cuda:sm_90"`; it need not be in this machine. `None` means the
            default one. Default: `None`.
        sizes: The values of the size names in types. Default: `None`.
        **named: Keyword arguments of the function.

    Returns:
        A line for each kernel, followed by its details.

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
    """A line for each kernel that the values compile to, and for each hint that a kernel does not
    follow.

    Args:
        name: The name of the program.
        results: The values.
        on: The device; `None` means the default one. Default: `None`.
    """
    graph = Graph({f"y{k}": v for k, v in enumerate(results)})
    return scheduled(name, graph, on or default_device())
