"""What users wait for, in a first process, whose cache is empty, and in a second:
`python -m benchmarks.compiling [--only unet,lenet] [--answers bert_base] [--before CHECKOUT]`.

The first table has CPU seconds to compile models of the zoo, with training. Weights of large models
are drawn after `compile`, when something first reads them, and not counted. The second table has
all that comes before the first prediction of a row: Python's start, imports, compiling, and drawing
weights; and the memory that this took. With another checkout of ztorch the two take turns, and the
tables have both. Each number is the least of a few turns: others on the machine only add to it.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
MODELS = "digits_mlp,digits_cnn,lstm_classifier,tiny_gpt,unet,resnet18:small"
ANSWERS = "digits_mlp,bert_base"
MIB = 1 << 20

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

# Prints when the answer was there, the bytes of weights, and the most memory that it took.
_ANSWER = """
import json, re, time
import numpy as np
from ztorch.sources.find import find
program = find({model!r}).model.compile("cpu", batch_size=1)
spec = program.executable.spec
[x] = spec.functions["predict"].inputs.values()
program.predict_on_batch(np.zeros(x.shape, x.dtype.numpy))
answered = time.time()
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
print(json.dumps([answered, spec.params_bytes, int(peak[1]) << 10]))
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


def answer(root: Path, model: str) -> list[tuple[float, float, float, float]]:
    """For a first and a second process of a checkout, all until its first prediction: seconds by
    the clock, CPU seconds with those of child processes, MiB at most, and MiB of weights."""
    command = [sys.executable, "-c", _ANSWER.format(model=model)]
    found = []
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(root), "ZTORCH_CACHE": cache}
        for _ in range(2):
            before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
            printed = subprocess.run(command, cwd=root, env=environment, capture_output=True,
                                     text=True, check=True).stdout
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
            answered, weights, peak = json.loads(printed)
            found.append((answered - begun, cpu, peak / MIB, weights / MIB))
    return found


def answer_lines(model: str, roots: Sequence[Path], turns: int) -> list[list[str]]:
    """The rows of a model in the table of first predictions: one for each checkout."""
    took = [[answer(root, model) for root in roots] for _ in range(turns)]
    rows = []
    for k in range(len(roots)):
        label = model if len(roots) == 1 else f"{model}, {('before', 'now')[k]}"
        cells = [label, f"{took[0][k][0][3]:.1f}"]
        for process in range(2):
            wall, cpu, peak = (min(turn[k][process][number] for turn in took)
                               for number in range(3))
            cells += [f"{wall:.2f}", f"{cpu:.2f}", f"{peak:.0f}"]
        rows.append(cells)
    return rows


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose first row has the names of columns."""
    return ["| " + " | ".join(row) + " |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:])]


def line(model: str, roots: list[Path], turns: int) -> list[str]:
    """A row of the table: for first and second process, the seconds of each checkout, and by how
    much the last takes less than the first."""
    took = [[seconds(root, model) for root in roots] for _ in range(turns)]
    cells = [model]
    for process in range(2):
        least = [min(turn[k][process] for turn in took) for k in range(len(roots))]
        cells += [f"{s:.2f}" if s >= 1 else f"{s:.3f}" for s in least]
        cells += [f"{1 - least[1] / least[0]:.0%}"] if len(roots) > 1 else []
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--only", default=MODELS, help=f"models to compile, default {MODELS}")
    parser.add_argument("--answers", default=ANSWERS,
                        help=f"models whose first prediction is timed, default {ANSWERS}")
    parser.add_argument("--before", type=Path, help="another checkout, to compare with")
    parser.add_argument("--turns", type=int, default=2)
    asked = parser.parse_args()
    roots = [*([asked.before.resolve()] if asked.before else []), ROOT]
    both = ["before", "now", "less"] if asked.before else ["seconds"]
    compiling = [["model", *(f"{process}: {what}" for process in ("first", "second")
                             for what in both)]]
    answers = [["model", "MiB of weights", *(
        f"{process}: {what}" for process in ("first", "second")
        for what in ("seconds", "CPU seconds", "MiB"))]]
    facts = machine.describe()
    path = RESULTS / f"compiling-{machine.slug()}.md"

    def write() -> None:
        path.write_text("\n".join([
            f"# Compiling, {facts['date']}", "",
            f"`python -m benchmarks.compiling` on {facts['cpu']}, {facts['SIMD level']}; load "
            f"average at the start {facts['load average at the start']}. First process with an "
            f"empty cache, second with the cache of the first. The least of {asked.turns} turns.",
            "", "## CPU seconds to compile with training, on one thread", "",
            "Imports are not counted, nor is the drawing of weights that large models put off.", "",
            *table(compiling), "", "## To the first prediction of a row, on all threads", "",
            "Python's start, imports, compiling, drawing all weights, and the prediction. CPU "
            "seconds include those of child processes, MiB are the most that the process held.", "",
            *table(answers), ""]), encoding="utf-8")

    for root in roots:  # imports are counted below, and a new checkout has no bytecode
        compileall.compile_dir(root / "ztorch", quiet=2)
    for model in filter(None, asked.only.split(",")):
        compiling.append(line(model, roots, asked.turns))
        print(*compiling[-1], flush=True)
        write()
    for model in filter(None, asked.answers.split(",")):
        answers += answer_lines(model, roots, asked.turns)
        print(*answers[-len(roots):], sep="\n", flush=True)
        write()


if __name__ == "__main__":
    main()
