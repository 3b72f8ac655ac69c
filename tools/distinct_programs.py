"""Compiles, runs and drops distinct programs in one process, and prints what the process holds:
`python -m tools.distinct_programs [--count 10000]`.

Caches fill during the first few thousand. After them nothing may grow. With `ZTORCH_CACHE` in an
empty folder, each program is compiled anew: some 20 a second.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from pathlib import Path

import numpy as np

import ztorch as zt
from ztorch import layers as L

INPUTS = 97  # programs differ in the numbers of inputs and of outputs
# Two primes, so that sizes are in no order: what the caches hold is alike at all times.
STEP, PROGRAMS = 7919, 10_007


def run_program(number: int) -> None:
    """Compiles a program that no other number has, and runs it."""
    place = number * STEP % PROGRAMS
    inputs, outputs = 3 + place % INPUTS, 1 + place // INPUTS
    model = zt.Sequential([L.Input((inputs,)), L.Dense(outputs)])
    model.compile(batch_size=1).predict_on_batch(np.zeros((1, inputs), np.float32))


def resources() -> dict[str, int]:
    """What the process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "maps": Path("/proc/self/maps").read_text().count("\n"),
        "resident KiB": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
        "objects": len(gc.get_objects()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=500, help="programs between two lines")
    options = parser.parse_args()
    begun = time.monotonic()
    for number in range(options.count):
        run_program(number)
        if (number + 1) % options.every == 0:
            gc.collect()
            facts = ", ".join(f"{n:,} {kind}" for kind, n in resources().items())
            print(f"{number + 1:,} programs: {facts}; {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
