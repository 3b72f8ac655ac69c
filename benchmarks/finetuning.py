"""Networks that PyTorch exported, trained on beside PyTorch: `python -m benchmarks.finetuning`.

Both begin with the same weights and take the same steps; their losses are compared."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine, peers
from benchmarks.network_kinds import NETWORKS, example, export, module_of

RESULTS = Path(__file__).parent / "results"
TRAINED = {  # family, and rate of SGD; without BatchNormalization, which exporters fold
    "bert classifier": ("transformer", 0.02), "gpt2": ("transformer", 0.02),
    "vit": ("transformer", 0.02), "squeezenet1_1": ("convolutions", 0.002),
    "convnext_tiny": ("convolutions", 0.02), "lstm": ("recurrent", 0.02),
    "gru": ("recurrent", 0.02)}
STEPS = 10
BOUND = 1e-4  # of the largest difference of losses, relative


def losses(name: str, folder: Path) -> tuple[list[float], list[float]]:
    """The losses of all steps: PyTorch's and ours."""
    import ztorch as zt

    rate = TRAINED[name][1]
    torch = peers.module("torch")
    net, x = module_of(NETWORKS[name]), example(NETWORKS[name])
    path = folder / "net.onnx"
    export(net, x, path, dynamo=True)
    rows = next(iter(x.values()))
    with torch.no_grad():
        shape = net(*x.values()).shape
    y = torch.randint(0, shape[-1], shape[:-1])
    model = zt.onnx.load(path)
    optimizer = torch.optim.SGD(net.parameters(), rate)
    theirs = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = net(*x.values())
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        theirs.append(float(loss))
    program = model.compile(
        "cpu", batch_size=len(rows), optimizer=zt.optimizers.SGD(rate),
        loss=zt.losses.SparseCategoricalCrossentropy(from_logits=True))
    ours = program.fit(rows.numpy(), y.numpy().astype(np.int32), epochs=STEPS, shuffle=False,
                       verbose=0).history["loss"]
    return theirs, [float(loss) for loss in ours]


def main(arguments: list[str] | None = None) -> int:
    """Trains the networks and writes the table. 1 where losses differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.finetuning", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    asked = parser.parse_args(arguments)
    lines, worst = [], 0.0
    for name in TRAINED:
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = losses(name, Path(folder))
        apart = max(abs(a - b) / abs(a) for a, b in zip(theirs, ours, strict=True))
        worst = max(worst, apart)
        family, rate = TRAINED[name]
        lines.append(f"| {name} | {family} | {rate} | {theirs[0]:.6f} | {theirs[-1]:.6f} "
                     f"| {ours[-1]:.6f} | {apart:.1e} |")
        print(lines[-1], flush=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / f"finetuning-{machine.slug()}.md"
    path.write_text(page(lines, machine.describe()), encoding="utf-8")
    print(f"written: {path}")
    return int(worst > BOUND)


def page(lines: list[str], facts: dict[str, Any]) -> str:
    """The table in Markdown."""
    versions = ", ".join(f"{k} {v}" for k, v in facts["versions"].items())
    return "\n".join([
        f"# Networks of others, trained on, {facts['date']}", "",
        f"`python -m benchmarks.finetuning` on {facts['cpu']}; {versions}, transformers "
        f"{machine.version('transformers')}.", "",
        f"Exported by PyTorch's newer exporter, then {STEPS} steps of SGD on one batch, "
        "in PyTorch and here, from the same weights, dropout off.", "",
        "| network | family | rate | first loss | PyTorch's last | ours "
        "| furthest apart, relative |",
        "| --- | --- | --- | --- | --- | --- | --- |", *lines, ""])


if __name__ == "__main__":
    sys.exit(main())
