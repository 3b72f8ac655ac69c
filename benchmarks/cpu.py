"""The command: `python -m benchmarks.cpu [--quick] [--only matmul,mlp] [--threads 1,all]
[--level avx2]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks import (
    array_programs,
    arrays,
    attention,
    convolution,
    convolution_passes,
    draws,
    epochs,
    generation,
    images,
    integers,
    kernels,
    linear_algebra,
    machine,
    matmul,
    mlp,
    recurrent,
    report,
    sizes,
    startup,
    training,
    transformers,
    vector_math,
)
from benchmarks.level import FAIR, limited
from benchmarks.timing import FULL, QUICK, Effort
from ztorch.host import processor

RESULTS = Path(__file__).parent / "results"
SECTIONS: dict[str, Callable[[list[int], Effort], report.Section]] = {
    "machine": machine.run,
    "matmul": matmul.run,
    "integers": integers.run,
    "mlp": mlp.run,
    "training": training.run,
    "conv": convolution.run,
    "conv passes": convolution_passes.run,
    "images": images.run,
    "transformers": transformers.run,
    "transformers train": transformers.run_training,
    **{f"{name.lower()} {verb}": partial(recurrent.run, name, verb)
       for name in recurrent.LAYERS for verb in ("predict", "train")},
    "recurrent compile": recurrent.run_compile,
    "attention": attention.run,
    "vector": vector_math.run,
    "arrays": arrays.run,
    "arrays large": arrays.run_large,
    "arrays programs": array_programs.run,
    "draws": draws.run,
    "linear algebra": linear_algebra.run,
    "kernels": kernels.run,
    "generate": generation.run,
    "sizes": sizes.run,
    "levels": mlp.run_levels,
    "fit": epochs.run,
    "compile": startup.run_compile,
    "size": startup.run_size,
    "start": startup.run_start,
}


def threads_of(text: str) -> list[int]:
    """Thread counts of the option, each once.

    >>> threads_of("1,4,1")
    [1, 4]
    """
    return list(dict.fromkeys(processor.usable_cores() if t == "all" else int(t)
                              for t in text.split(",")))


def main(arguments: list[str] | None = None) -> int:
    """Runs the sections asked for; prints and writes their tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=__doc__)
    parser.add_argument("--quick", action="store_true",
                        help="a few rounds only: a check that all runs, not a measurement")
    parser.add_argument("--only", default=",".join(SECTIONS),
                        help=f"sections, of {','.join(SECTIONS)}")
    parser.add_argument("--threads", default="1,all", help="thread counts, such as 1,2,all")
    parser.add_argument("--level", default="", choices=["", "avx2"],
                        help="without AVX-512, which the peers are told as well")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    asked = parser.parse_args(arguments)
    names = asked.only.split(",")
    if wrong := [n for n in names if n not in SECTIONS]:
        parser.error(f"no section {', '.join(wrong)}; there are {', '.join(SECTIONS)}")
    lower = limited("benchmarks.cpu", asked.level, sys.argv[1:] if arguments is None else arguments)
    effort = QUICK if asked.quick else FULL
    threads = threads_of(asked.threads)
    facts = {**machine.describe(), **({"SIMD level": FAIR} if lower else {})}
    for key, value in facts.items():
        print(f"{key}: {value}")
    parts = facts["date"], machine.slug(), asked.level, "quick" * asked.quick
    stem = "-".join(part for part in parts if part)
    begun = perf_counter()
    # What earlier runs of the day measured stays: a long run may be done piece by piece.
    sections = report.sections(asked.out / f"{stem}.json")
    for name in names:
        print(f"\n[{name}] after {perf_counter() - begun:.0f} s", flush=True)
        section = SECTIONS[name](threads, effort)
        sections[section.key] = section.after(sections.get(section.key))
        print(f"\n{section.markdown()}", flush=True)
        # Written after every section: a long run that is broken off has not been for nothing.
        written = report.write(asked.out, stem, facts, list(sections.values()), asked.quick)
    print("written: " + ", ".join(map(str, written)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
