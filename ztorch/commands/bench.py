"""ztorch bench: measures the time of a prediction and of a training step."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from time import perf_counter

import click

from ztorch.commands.train import compiled
from ztorch.compile.targeting import target_for
from ztorch.program.program import Program
from ztorch.runtime.devices import resolve
from ztorch.sources.find import find
from ztorch.terminal.text_table import aligned_table
from ztorch.terminal.work_line import at, working

KERNELS = 10  # number of kernels of a function that are listed
WARM_CALLS = 10  # calls before the measured ones, as long as they take no longer than those
MIN_CALLS = 5  # least number of measured calls


def bench(name: str, batch_sizes: tuple[int, ...], device: str, threads: int | None,
          seconds: float, dtype: str | None, profile: bool = False,
          sizes: Iterable[tuple[str, tuple[int, ...]]] = ()) -> None:
    """Prints the median time of one call with the data already in the program's buffers; with
    `profile`, on a CPU, also the time of each kernel."""
    recipe = find(name)
    if profile:
        _need_cpu(name, device)
    axis_sizes = dict(sizes) or recipe.sizes
    if recipe.model.open_axes and not axis_sizes:
        axes = ", ".join(recipe.model.axis_names)
        raise click.UsageError(f"{name} leaves axes open ({axes}); say their sizes: "
                               f"--sizes {recipe.model.axis_names[0]}=64")
    rows = [("batch", "predict us", "train us", "rows/s trained")]
    profiles: list[str] = []
    with working(f"bench {recipe.model.name}"):
        for size in batch_sizes:
            at(f"compile for batches of {size}")
            if recipe.loss is None:
                program = recipe.model.compile(device, batch_size=size, threads=threads,
                                               dtype=dtype or recipe.dtype, sizes=axis_sizes)
            else:
                program = compiled(recipe, device, size, threads=threads, dtype=dtype, sizes=sizes)
            at(f"measure batches of {size}")
            rows.append(_times(program, size, seconds))
            if profile:
                profiles += [_kernels(program, function, size)
                             for function in ("predict", "train")
                             if function in program.executable.functions]
    print(f"{recipe.model.name} on {program.device}, {program.executable.threads} threads at most")
    print(aligned_table(rows))
    for text in profiles:
        print(f"\n{text}")


def _need_cpu(name: str, device: str) -> None:
    """Raises unless kernels on the device can be measured one by one."""
    target = target_for(resolve(device))
    if target.limits.grid is not None or target.emits_source:
        raise click.UsageError(f"--profile is for CPUs, not {target.name}; `ztorch explain "
                               f"{name} --device {target.name}` predicts kernels of GPUs")


def _times(program: Program, size: int, seconds: float) -> tuple[str, str, str, str]:
    """The cells of the table for one size of batches."""
    predict = microseconds(program, "predict", seconds, size)
    if "train" not in program.executable.functions:
        return str(size), f"{predict:.1f}", "-", "-"
    step = microseconds(program, "train", seconds, size)
    return str(size), f"{predict:.1f}", f"{step:.1f}", f"{size / step * 1e6:,.0f}"


def _kernels(program: Program, function: str, size: int) -> str:
    """The slowest kernels of a function, each of which runs alone."""
    times = program.explain(function, measure=True)
    return f"batch {size}: {times.text(rows=KERNELS, why=False)}"


def microseconds(program: Program, function: str, seconds: float = 0.5, rows: int = 0) -> float:
    """The median time of a call of a function.

    Args:
        program: The program.
        function: The name of the function.
        seconds: How long to measure. Default: `0.5`.
        rows: The number of rows of a batch, for the progress line. Default: `0`.
    """
    call = program.executable.bind(function)
    for array in call.inputs.values():
        array[...] = 0 if array.dtype.kind in "iu" else 0.5
    times: list[float] = []
    at(f"{function} with {rows} rows")
    begin = perf_counter()
    for k in range(WARM_CALLS):
        call()  # caches and workers warm up
        if k and perf_counter() - begin > seconds:
            break
    end = perf_counter() + seconds
    while (start := perf_counter()) < end or len(times) < MIN_CALLS:
        call()
        times.append(perf_counter() - start)
    return median(times) * 1e6
