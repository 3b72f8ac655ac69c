"""The command: `python -m benchmarks.gpu [--quick] [--devices cuda:0,opencl] [--only conv,rows]`.

On a GPU that is new, `--smoke` goes first: it takes two minutes and says which call of the driver
fails. A run that was broken off goes on with `--resume`. `--predict` needs no device.

Every device that is here, beside the peer that runs there: PyTorch on an NVIDIA GPU; on drivers
that only imitate a GPU on the CPU, NumPy, and our own code for the CPU, to keep them honest.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from benchmarks import (
    gpu_compiled,
    gpu_kernels,
    gpu_models,
    gpu_ops,
    gpu_parity,
    gpu_predictions,
    machine,
    report,
)
from benchmarks.gpu_cases import GPU, SMALL, SOFTWARE, Case, Sizes
from benchmarks.gpu_smoke import smoke
from benchmarks.report import Section, duration
from benchmarks.timing import QUICK, Effort
from ztorch.errors import Unsupported
from ztorch.runtime.devices import SOURCES, ListedDevice, devices

RESULTS = Path(__file__).parent / "results"
MINUTES = 10  # of a run: a GPU may be lent for half an hour
ON_GPU = Effort(block=2.5e-3, least=11, most=41, seconds=1.5, rest=0.0)  # no threads but the GPU's
IMITATED = Effort(block=2.5e-3, least=5, most=15, seconds=1.5)  # its calls take long


class Kind(NamedTuple):
    """A kind of rows: the limit of the best possible program, and the measurement on a device."""

    title: str
    limit: str
    cases: Callable[[ListedDevice, Sizes], list[Case]]


KINDS = {
    "parity": Kind("Parity with float64", "nothing: a wrong result is a failure. All ops, and all "
                   "models of the zoo, as the tests compare them; on GPUs only.",
                   gpu_parity.cases),
    "kernels": Kind("Main kernels", "arithmetic of matrix instructions, or reading and writing "
                    "each number once; the share after the rate is that of the device's peak or of "
                    "the rate of a copy. Calls are replayed twenty times before anybody waits. On "
                    "CUDA the same kernels are also compiled as C++, by NVRTC.",
                    gpu_kernels.cases),
    "matmul": Kind("Matrix products", "arithmetic; for few rows reading the matrix. PyTorch's "
                   "default precision of float32 is all of its bits.", gpu_ops.products),
    "rows": Kind("Softmax and layer norm", "reading and writing each number once", gpu_ops.rows),
    "attention": Kind("Attention, float32", "arithmetic of the two products", gpu_ops.attention),
    "conv": Kind("Convolution 3x3, float32", "arithmetic. PyTorch is told to keep all bits here "
                 "too, which is not its default.", gpu_ops.convolution),
    "models": Kind("Models of the zoo", "the launches of small kernels. A step is one of training "
                   "with Adam. `numpy` evaluates the same graph op by op; PyTorch has the same "
                   "weights, and its predictions are compared. torch.compile has "
                   f"{gpu_compiled.LIMIT:g} seconds for each.", gpu_models.cases),
    "launches": Kind("Launch overhead", "the driver", gpu_ops.launches),
}
METHOD = (
    "`ztorch` runs on data that are on the device already, as the peers do; `with copies` "
    "includes copying inputs to it and outputs back. Wall-clock medians of interleaved blocks "
    "with the 10th and 90th percentile, each run waited for; `xN` is the contestant's time over "
    "ours: the median, 10th and 90th percentile of the ratios within one round. The largest error"
    " is against NumPy, as a share of the largest number. `predicted` is our time by the model of"
    " `ztorch explain`, where it has figures for the device. A device of kind cpu imitates a GPU "
    "in software: it gets smaller work and says nothing about the speed of a GPU.")


def main(arguments: list[str] | None = None) -> int:
    """Measures the kinds of rows asked for on the devices that are here; prints and writes their
    tables. 1 where a row failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--quick", action="store_true",
                        help="small sizes, a few rounds: a check that all runs")
    parser.add_argument("--devices", help="such as cuda:0,opencl; all if left out")
    parser.add_argument("--only", default=",".join(KINDS),
                        help=f"kinds of rows, of {','.join(KINDS)}")
    parser.add_argument("--smoke", action="store_true", help="in two minutes, whether devices do "
                        "what programs ask of them, and which call of the driver fails")
    parser.add_argument("--predict", action="store_true", help="predictions of the performance "
                        "model for the main kernels and steps; needs no device")
    parser.add_argument("--resume", action="store_true", help="go on with today's run of this "
                        "machine where it was broken off")
    parser.add_argument("--minutes", type=float, default=MINUTES,
                        help=f"begin no row later than that (default: {MINUTES}; inf: no limit); "
                        "--resume measures the rest")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    asked = parser.parse_args(arguments)
    if asked.predict:
        print("\n".join(map(str, gpu_predictions.write(asked.out, asked.quick))))
        return 0
    names = asked.only.split(",")
    if wrong := [n for n in names if n not in KINDS]:
        parser.error(f"no kind of rows {', '.join(wrong)}; there are {', '.join(KINDS)}")
    try:
        here = chosen(asked.devices.split(",") if asked.devices else None)
    except LookupError as error:
        parser.error(str(error))
    if asked.smoke:
        return smoke(here)
    facts = machine.describe() | {d.id: f"{d.name} ({d.kind}), {d.driver}" for d in here}
    for key, value in facts.items():
        print(f"{key}: {value}")
    stem = f"{facts['date']}-{machine.slug()}-devices{'-quick' * asked.quick}"
    known = report.sections(asked.out / f"{stem}.json") if asked.resume else {}
    work = [(known.get(n) or Section(n, KINDS[n].title, KINDS[n].limit),
             [(d, case) for d in here for case in KINDS[n].cases(d, sizes(d, asked.quick))])
            for n in names]
    work = [(section, [(d, case) for d, case in rows if not section.has(case.name, d.id)])
            for section, rows in work]
    written: list[Path] = []
    begun, done, count = perf_counter(), 0, sum(len(rows) for _, rows in work)
    for section, rows in work:
        for d, case in rows:
            if perf_counter() - begun >= 60 * asked.minutes:
                break
            done += 1
            print(f"[{done} of {count}, after {duration(perf_counter() - begun)}] {section.key} on "
                  f"{d.id}: {case.name}", flush=True)
            measure(section, d, case, asked.quick)
            # Written after every row: a long run that is broken off has not been for nothing.
            written = report.write(asked.out, stem, facts, [s for s, _ in work if s.lines],
                                   asked.quick, "Devices", METHOD)
        if section.lines:
            print(f"\n{section.markdown()}", flush=True)
    end = f"written: {', '.join(map(str, written))}" if count else "nothing is left to measure"
    left = f"; {count - done} rows are left, which --resume measures" if done < count else ""
    print(f"{end}, after {duration(perf_counter() - begun)}{left}")
    return int(any("failed" in r for s, _ in work for r in s.results))


def chosen(asked: Sequence[str] | None) -> list[ListedDevice]:
    """The devices asked for, by id or by backend; all that have memory of their own if None."""
    here = [d for d in devices() if d.available and d.id.split(":")[0] not in
            ("cpu", *SOURCES, "dummy")]
    if asked is None and here:
        return here
    matching = [d for d in here if {d.id, d.id.split(":")[0]} & set(asked or ())]
    missing = [a for a in asked or ("any",) if all(a not in (d.id, d.id.split(":")[0])
                                                   for d in matching)]
    if missing:
        raise LookupError(f"{', '.join(missing)}: not here; `ztorch devices` lists what is"
                          + (f", of which {', '.join(d.id for d in here)} can be measured"
                             if here else ""))
    return matching


def sizes(d: ListedDevice, quick: bool) -> Sizes:
    """How much work suits a device."""
    return SMALL if quick else SOFTWARE if d.kind == "cpu" else GPU


def measure(section: Section, d: ListedDevice, case: Case, quick: bool) -> None:
    """One row. What fails on one device is a line of the table, and the others go on."""
    effort = QUICK if quick else IMITATED if d.kind == "cpu" else ON_GPU
    try:
        timings, error, rate, predicted, left_out = case.run(effort)
    except Unsupported as lack:  # a dtype that the device has not: no fault of anybody
        section.failed(case.name, lack, "unsupported", device=d.id)
    except (Exception, SystemExit) as failure:  # the latter where a result is wrong
        section.failed(case.name, failure, device=d.id)
    else:
        beside = {"predicted": predicted} if predicted else {}
        section.compared(case.name, None, timings, error, device=d.id, rate=rate, **beside)
        if left_out:
            section.note(f"{case.name}, {d.id}: {left_out}")


if __name__ == "__main__":
    sys.exit(main())
