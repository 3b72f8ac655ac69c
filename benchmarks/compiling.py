"""CPU seconds to compile models of the zoo, with training: in a first process, whose cache is
empty, and in a second: `python -m benchmarks.compiling [--only unet,lenet] [--before CHECKOUT]`.

Weights of large models are drawn after `compile`, when something first reads them, and not counted.
With another checkout of ztorch the two take turns, and the table has the seconds of both. Each
number is the least of a few turns: CPU time only grows when others use the machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import machine

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
MODELS = "digits_mlp,digits_cnn,lstm_classifier,tiny_gpt,unet,resnet18:small"

# Runs in either checkout. What is imported is not counted: files of a checkout may lack bytecode.
_COMPILE = """
import time
import ztorch.compile.pipeline, ztorch.optimizers
from ztorch.commands.train import compiled
from ztorch.sources.find import find
recipe = find({model!r})
begun = time.process_time()
compiled(recipe, "cpu", threads=1)
print(time.process_time() - begun)
"""


def seconds(root: Path, model: str) -> tuple[float, float]:
    """CPU seconds of `compile` in a first and in a second process of a checkout."""
    command = [sys.executable, "-c", _COMPILE.format(model=model)]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(root), "ZTORCH_CACHE": cache}
        first, second = (float(subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=True).stdout)
            for _ in range(2))
    return first, second


def line(model: str, roots: list[Path], turns: int) -> list[str]:
    """A row of the table: for first and second process, the seconds of each checkout, and by how
    much the last takes less than the first."""
    took = [[seconds(root, model) for root in roots] for _ in range(turns)]
    cells = [model]
    for process in range(2):
        least = [min(turn[k][process] for turn in took) for k in range(len(roots))]
        cells += [f"{s:.2f}" if s >= 1 else f"{s:.3f}" for s in least]
        cells += [f"{1 - least[1] / least[0]:.0%}"] * (len(roots) > 1)
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--only", default=MODELS, help=f"models, default {MODELS}")
    parser.add_argument("--before", type=Path, help="another checkout, to compare with")
    parser.add_argument("--turns", type=int, default=2)
    asked = parser.parse_args()
    roots = [*([asked.before.resolve()] if asked.before else []), ROOT]
    both = ["before", "now", "less"] if asked.before else ["seconds"]
    columns = ["model", *(f"{process}: {what}" for process in ("first", "second") for what in both)]
    rows = [columns, ["---"] * len(columns)]
    facts = machine.describe()
    path = RESULTS / f"compiling-{machine.slug()}.md"
    for model in asked.only.split(","):
        rows.append(line(model, roots, asked.turns))
        print(*rows[-1], flush=True)
        path.write_text("\n".join([
            f"# CPU seconds to compile models with training, {facts['date']}", "",
            f"`python -m benchmarks.compiling` on {facts['cpu']}, {facts['SIMD level']}; load "
            f"average at the start {facts['load average at the start']}. First process with an "
            "empty cache, second with the cache of the first; imports are not counted, nor is the "
            "drawing of weights that large models put off. The least "
            f"of {asked.turns} turns.", "",
            *("| " + " | ".join(row) + " |" for row in rows), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
