"""Trains every model of the zoo as its file describes, and compares the result on test data with
the bar that the file sets: `python -m benchmarks.zoo [--only unet,vae]`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import machine
from benchmarks.report import Section, duration
from ztorch import data
from ztorch.commands.train import compiled
from ztorch.sources.find import find, zoo
from ztorch.sources.recipe import Recipe

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Trained:
    """The outcome of one recipe."""

    name: str
    recipe: Recipe
    data: str
    compiling: float  # seconds
    training: float
    scores: dict[str, float]  # on test data

    def met(self, metric: str) -> bool:
        bar = (self.recipe.bar or {})[metric]
        score = self.scores[metric]
        return score >= bar if "accuracy" in metric else score <= bar

    @property
    def passed(self) -> bool:
        return all(map(self.met, self.recipe.bar or {}))


def that_fits(name: str) -> tuple[str, Recipe, str]:
    """The model of a name and data that come with ztorch; where these are not for the large one,
    the small one.

    >>> that_fits("mnist_mlp")[::2], that_fits("resnet18")[::2]
    (('mnist_mlp', 'digits_28'), ('resnet18:small', 'shapes_64'))
    """
    recipe = find(name)
    if recipe.small_data is not None:
        name, recipe = f"{name}:small", find(f"{name}:small")
    named = recipe.stand_in or recipe.data
    assert named is not None, f"{name} names no data"
    return name, recipe, named


def train(name: str, device: str, threads: int | None) -> Trained:
    """Trains as described, in full length."""
    name, recipe, named = that_fits(name)
    (x, y), (x_test, y_test) = data.load(named)
    if recipe.target == "x":
        y, y_test = x, x_test
    begun = perf_counter()
    program = compiled(recipe, device, threads=threads)
    ready = perf_counter()
    program.fit(x, y, epochs=recipe.epochs, verbose=0)
    done = perf_counter()
    scores: Any = program.evaluate(x_test, y_test, verbose=0, return_dict=True)
    return Trained(name, recipe, named, ready - begun, done - ready, scores)


def line(t: Trained) -> dict[str, str]:
    bar = t.recipe.bar or {}
    return {
        "model": t.name, "parameters": f"{t.recipe.model.count_params():,}", "data": t.data,
        "epochs": str(t.recipe.epochs), "compiling": duration(t.compiling),
        "training": duration(t.training),
        "result": ", ".join(f"{m} {t.scores[m]:.4f}" for m in bar),
        "bar": ", ".join(f"{'≥' if 'accuracy' in m else '≤'} {v:g}" for m, v in bar.items()),
        "met": "yes" if t.passed else "**no**",
    }


def main(arguments: list[str] | None = None) -> int:
    """Trains the models asked for; prints and writes the table. 1 where a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument("--only", default=",".join(zoo()), help="models, with commas")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    asked = parser.parse_args(arguments)
    facts = machine.describe()
    table = Section("zoo", "The zoo, trained", "")
    path = asked.out / f"{facts['date']}-zoo-{machine.slug()}.md"
    asked.out.mkdir(parents=True, exist_ok=True)
    begun, passed = perf_counter(), True
    for name in asked.only.split(","):
        trained = train(name, asked.device, asked.threads)
        passed &= trained.passed
        table.line(line(trained))
        # Written after every model: a long run that is broken off has not been for nothing.
        path.write_text(page(table, facts, perf_counter() - begun), encoding="utf-8")
    print(f"written: {path}, after {perf_counter() - begun:.0f} s")
    return 0 if passed else 1


def page(table: Section, facts: dict[str, Any], took: float) -> str:
    """The table in Markdown, with the machine it was made on."""
    columns = list(table.lines[0])
    rows = [columns, ["---"] * len(columns), *(list(row.values()) for row in table.lines)]
    versions = ", ".join(f"{k} {v}" for k, v in facts["versions"].items())
    return "\n".join([
        f"# {table.title}, {facts['date']}", "",
        f"`python -m benchmarks.zoo` on {facts['cpu']}, {facts['cores']}, {facts['SIMD level']}; "
        f"{versions}; load average at the start {facts['load average at the start']}. All in "
        f"{took:.0f} s.", "",
        "Each model is trained once, as its file in `models/` says, from its own seed, and "
        "measured on rows that it was not trained on. The bar is the file's own.", "",
        *("| " + " | ".join(row) + " |" for row in rows), ""])


if __name__ == "__main__":
    sys.exit(main())
