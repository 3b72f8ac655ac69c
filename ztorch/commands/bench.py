"""ztorch bench: how long a step takes."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from time import perf_counter

import click

from ztorch.commands.table import table
from ztorch.commands.train import compiled
from ztorch.compile.targeting import target_for
from ztorch.program.program import Program
from ztorch.runtime.devices import resolve
from ztorch.sources.find import find
from ztorch.work_line import at, working

KERNELS = 10  # of a function that are listed


def bench(name: str, batch_sizes: tuple[int, ...], device: str, threads: int | None,
          seconds: float, dtype: str | None, profile: bool = False,
          sizes: Iterable[tuple[str, tuple[int, ...]]] = ()) -> None:
    """Prints the median time of one call with the data already in the program's buffers; with
    `profile`, on a CPU, also the time of each kernel."""
    recipe = find(name)
    if profile:
        chosen = target_for(resolve(device))
        if chosen.limits.grid is not None or chosen.emits_source:
            raise click.UsageError(f"--profile is for CPUs, not {chosen.name}; `ztorch explain "
                                   f"{name} --device {chosen.name}` predicts kernels of GPUs")
    chosen_sizes = dict(sizes) or recipe.sizes
    if recipe.model.open_axes and not chosen_sizes:
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
                                               dtype=dtype or recipe.dtype, sizes=chosen_sizes)
            else:
                program = compiled(recipe, device, size, threads=threads, dtype=dtype, sizes=sizes)
            at(f"measure batches of {size}")
            predict = microseconds(program, "predict", seconds, size)
            train, rate = "-", "-"
            if "train" in program.executable.functions:
                step = microseconds(program, "train", seconds, size)
                train, rate = f"{step:.1f}", f"{size / step * 1e6:,.0f}"
            rows.append((str(size), f"{predict:.1f}", train, rate))
            if profile:
                profiles += [_kernels(program, function, size)
                             for function in ("predict", "train")
                             if function in program.executable.functions]
    print(f"{recipe.model.name} on {program.device}, {program.executable.threads} threads at most")
    print(table(rows))
    for text in profiles:
        print(f"\n{text}")


def _kernels(program: Program, function: str, size: int) -> str:
    """The kernels of a function that take longest, each run alone."""
    times = program.explain(function, measure=True)
    return f"batch {size}: {times.text(rows=KERNELS, why=False)}"


WARM = 10  # calls before those that are measured, unless they take longer than these


def microseconds(program: Program, function: str, seconds: float = 0.5, rows: int = 0) -> float:
    """The median time of a call of a function on batches of so many rows."""
    call = program.executable.bind(function)
    for array in call.inputs.values():
        array[...] = 0 if array.dtype.kind in "iu" else 0.5
    times: list[float] = []
    at(f"{function} with {rows} rows")
    begin = perf_counter()
    for k in range(WARM):
        call()  # caches and workers warm up
        if k and perf_counter() - begin > seconds:
            break
    end = perf_counter() + seconds
    while (start := perf_counter()) < end or len(times) < 5:
        call()
        times.append(perf_counter() - start)
    return median(times) * 1e6
