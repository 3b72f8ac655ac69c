"""The rules that choose schedules, beside what the tuner finds:
`python -m benchmarks.tuned [--only lenet,unet] [--levels avx2,avx512] [--seconds 60]`.

For each model of the zoo, predicting and training on one thread, the tuner measures the kernels
with the most work first, for as long as `--seconds` says. Times of distinct kernels are added up:
with the schedules of the rules, and with the fastest. Schedules that it finds are not kept.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine, report
from benchmarks.report import Section, duration
from ztorch.host import settings
from ztorch.sources.find import find

RESULTS = Path(__file__).parent / "results"
# The networks of the other benchmarks: a model, its batch when it predicts, and when it trains.
CASES = {
    "mnist_mlp": (32, 128), "lenet": (64, 64), "cifar_resnet": (1, 32), "mobilenet": (1, 32),
    "resnet18": (1, 0), "unet": (1, 8), "lstm_classifier": (32, 32), "tiny_gpt": (1, 16),
    "bert_base": (1, 0)}  # 0: it does not train here, which takes minutes
COUNTED = 0.02  # kernels below this share of the time do not count as the worst one
LIMIT = ("the tuner itself: its times of one schedule differ by some per cent from run to run, and "
         "it keeps another one than that of the rules if it is faster by more than that. `rules` "
         "and `tuned` add up the times of distinct kernels, each counted once.")


def run(section: Section, names: Sequence[str], levels: Sequence[str], seconds: float) -> None:
    """Adds a line for each model, function and level."""
    for name in names:
        for verb, batch in zip(("predict", "train"), CASES[name], strict=True):
            for level in levels if batch else ():
                with tempfile.TemporaryDirectory() as cache, settings.using(cache=cache):
                    _line(section, name, verb, batch, level, seconds)


def _line(section: Section, name: str, verb: str, batch: int, level: str, seconds: float) -> None:
    recipe = find(name)
    training: dict[str, Any] = {"optimizer": "adam", "loss": recipe.loss} if verb == "train" else {}
    tuning = recipe.model.tune(f"cpu:{level}", batch_size=batch, threads=1, seconds=seconds,
                              again=True, **training)
    rules = sum(k.rule_seconds for k in tuning.kernels)
    tuned = sum(k.seconds for k in tuning.kernels)
    most = max(tuning.kernels, key=lambda k: (
        k.rule_seconds / k.seconds if k.rule_seconds > COUNTED * rules else 0))
    section.line({
        "case": f"{name}, batch {batch}, {verb}, {level}",
        "kernels": f"{len(tuning.kernels)} of {len(tuning.kernels) + tuning.left}",
        "rules": duration(rules), "tuned": duration(tuned), "ratio": f"{rules / tuned:.3f}",
        "most gained by": f"{most.title}: {most.rule_seconds / most.seconds:.2f}"},
        schedules={k.title: [k.rule, k.schedule, k.rule_seconds, k.seconds]
                   for k in tuning.kernels if k.rule_seconds > 1.03 * k.seconds})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--only", default=",".join(CASES), help="models of the zoo")
    parser.add_argument("--levels", default="avx512,avx2", help="SIMD levels")
    parser.add_argument("--seconds", type=float, default=60, help="for each line")
    asked = parser.parse_args()
    stem = f"tuned-{machine.slug()}"
    facts = machine.describe()
    section = Section("tuned", "Rules beside the tuner", LIMIT)
    for name in asked.only.split(","):
        run(section, [name], asked.levels.split(","), asked.seconds)
        before = report.sections(RESULTS / f"{stem}.json").get(section.key)
        report.write(RESULTS, stem, facts, [section.after(before)], False,
                     "The rules beside the tuner", "Medians by the CPU clock of one thread.")


if __name__ == "__main__":
    main()
