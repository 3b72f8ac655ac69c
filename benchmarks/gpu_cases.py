"""The measurements of benchmarks.gpu: how large the work is, one row, and how a row is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.timing import Contestant, Effort, Timing, compare

Runs = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Sizes:
    """How large the work is. `halves`: whether products of 16-bit floats are measured, which
    drivers that imitate a GPU only convert."""

    product: int  # rows, columns and depth
    rows: tuple[int, int]
    length: int  # of what attends
    images: int
    channels: int
    batch: int
    models: tuple[str, ...]
    halves: bool


GPU = Sizes(4096, (8192, 4096), 1024, 32, 128, 32, (
    "digits_mlp", "digits_cnn", "tiny_gpt", "lenet", "cifar_resnet", "mobilenet"), True)
SOFTWARE = Sizes(256, (256, 512), 64, 2, 32, 8, ("digits_mlp", "digits_cnn", "tiny_gpt"), False)
SMALL = Sizes(64, (32, 64), 16, 1, 8, 2, ("digits_mlp",), True)


class Measured(NamedTuple):
    """A row: the first timing is ours on the device."""

    timings: list[Timing]
    error: float  # our largest
    rate: str  # work done a second
    predicted: str = ""  # our time as the performance model has it; empty: it knows no such device
    left_out: str = ""  # who, and why


@dataclass(frozen=True)
class Case:
    """A row to be measured; arrays and programs are made when it is run."""

    name: str
    run: Callable[[Effort], Measured]


def resident(call: Any) -> Callable[[], object]:
    """A run whose inputs are on the device already and whose outputs stay there."""
    device, recording = call.ports.device, call.ports.recording

    def run() -> None:
        device.run(recording)
        device.synchronize()

    return run


def measured(runs: Runs, error: float, effort: Effort, work: float, unit: str,
             resets: Runs | None = None) -> Measured:
    """The runs compared; `work` is what one of them does, in units of so many a second."""
    again = resets or {}
    timings = compare([Contestant(n, r, again.get(n)) for n, r in runs.items()], False, effort)
    return Measured(timings, error, f"{work / timings[0].seconds:.3g} {unit}")
