"""Networks that PyTorch exported, trained on beside PyTorch: `python -m benchmarks.finetuning`.

Both begin with the same weights and take the same steps; their losses are compared."""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine, peers
from benchmarks.network_kinds import BATCH, NETWORKS, example, export, module_of

RESULTS = Path(__file__).parent / "results"
STEPS = 10
BOUND = 1e-4  # of the largest difference of losses, relative


@dataclass(frozen=True)
class Training:
    """How a network is trained on."""

    family: str
    rate: float  # of SGD
    whole: bool = True  # whether the older exporter writes all of it; the newer one folds weights
    batch_statistics: bool = False  # of BatchNormalization; in float64: few rows magnify errors
    classes: bool = True  # whether the last axis are classes; else a tensor is the target


TRAINED = {
    "bert classifier": Training("transformer", 0.02, whole=False),
    "gpt2": Training("transformer", 0.02, whole=False),
    "vit": Training("transformer", 0.02, whole=False),
    "squeezenet1_1": Training("convolutions", 0.002, whole=False),
    "convnext_tiny": Training("convolutions", 0.02, whole=False),
    "lstm": Training("recurrent", 0.02, whole=False),
    "gru": Training("recurrent", 0.02, whole=False),
    "distilbert": Training("transformer", 0.02, classes=False),
    "llama": Training("transformer", 0.02),
    "t5": Training("encoder and decoder", 0.02),
    "swin": Training("transformer of windows", 0.02, classes=False),
    "whisper": Training("encoder and decoder of sound", 0.02, classes=False),
    "wav2vec2": Training("transformer of sound", 0.02, classes=False),
    "mixer_s32_224": Training("mixer", 0.002),
    "resnet18": Training("convolutions", 0.002, batch_statistics=True),
    "mobilenet_v3_small": Training("convolutions", 0.02),
    "lraspp_mobilenet_v3_large": Training("segmentation", 0.02, classes=False),
    "fasterrcnn_mobilenet_v3_large_fpn.backbone": Training("detection", 0.002, classes=False)}


def losses(name: str, folder: Path) -> tuple[list[float], list[float]]:
    """The losses of all steps: PyTorch's and ours."""
    import ztorch as zt

    how = TRAINED[name]
    torch = peers.module("torch")
    net, x = module_of(NETWORKS[name]), example(NETWORKS[name])
    if how.whole:
        net = First(net)
    net.train(how.batch_statistics)
    path = folder / "net.onnx"
    if how.whole:
        _export_whole(net, x, path)
    else:
        export(net, x, path, dynamo=True)
    rows = len(next(iter(x.values())))
    with torch.no_grad():
        shape = net.eval()(*x.values()).shape
    net.train(how.batch_statistics)
    y = torch.randint(0, shape[-1], shape[:-1]) if how.classes else torch.randn(shape)
    model = zt.onnx.load(path)
    if how.batch_statistics:
        net, x = net.double(), {n: v.double() for n, v in x.items()}
    optimizer, theirs = torch.optim.SGD(net.parameters(), how.rate), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        results = net(*x.values())
        loss = (torch.nn.functional.cross_entropy(results.reshape(-1, shape[-1]), y.reshape(-1))
                if how.classes else torch.nn.functional.mse_loss(results, y))
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    program = model.compile(
        "cpu", batch_size=rows, dtype="float64" if how.batch_statistics else "float32",
        optimizer=zt.optimizers.SGD(how.rate),
        loss=zt.losses.SparseCategoricalCrossentropy(from_logits=True) if how.classes else "mse")
    given = [v.numpy() for v in x.values()]
    ours = program.fit(given[0] if len(given) == 1 else given,
                       y.numpy().astype(np.int32 if how.classes else np.float32), epochs=STEPS,
                       shuffle=False, verbose=0).history["loss"]
    return theirs, [float(loss) for loss in ours]


def First(net: Any) -> Any:
    """A module that returns the first tensor of another: backbones return several by name."""
    torch = peers.module("torch")

    class Module(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, *x: Any) -> Any:
            y = self.net(*x)
            return next(iter(y.values())) if isinstance(y, dict) else y

    return Module()


def _export_whole(net: Any, x: dict[str, Any], path: Path) -> None:
    """Writes a network with all its weights as they are: BatchNormalization by itself, weights that
    are used twice once."""
    torch = peers.module("torch")
    torch.backends.mha.set_fastpath_enabled(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, tuple(x.values()), path, dynamo=False, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.PRESERVE, input_names=list(x),
                          dynamic_axes={name: {0: "batch"} for name in x})


def main(arguments: list[str] | None = None) -> int:
    """Trains the networks and writes the table. 1 where losses differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.finetuning", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--only", nargs="*", choices=[*TRAINED], help="some networks; no table")
    asked = parser.parse_args(arguments)
    lines, worst = [], 0.0
    for name in asked.only or TRAINED:
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = losses(name, Path(folder))
        apart = max(abs(a - b) / abs(a) for a, b in zip(theirs, ours, strict=True))
        worst = max(worst, apart)
        how = TRAINED[name]
        lines.append(f"| {name} | {how.family} | {'older' if how.whole else 'newer'} | {how.rate} "
                     f"| {theirs[0]:.6f} | {theirs[-1]:.6f} | {ours[-1]:.6f} | {apart:.1e} |")
        print(lines[-1], flush=True)
    if not asked.only:
        asked.out.mkdir(parents=True, exist_ok=True)
        path = asked.out / f"finetuning-{machine.slug()}.md"
        path.write_text(page(lines, machine.describe()), encoding="utf-8")
        print(f"written: {path}")
    return int(worst > BOUND)


def page(lines: list[str], facts: dict[str, Any]) -> str:
    """The table in Markdown."""
    versions = ", ".join(f"{k} {v}" for k, v in facts["versions"].items())
    batch = [name for name, how in TRAINED.items() if how.batch_statistics]
    return "\n".join([
        f"# Networks of others, trained on, {facts['date']}", "",
        f"`python -m benchmarks.finetuning` on {facts['cpu']}; {versions}, transformers "
        f"{machine.version('transformers')}.", "",
        f"Exported by one of PyTorch's exporters, then {STEPS} steps of SGD on one batch, in "
        "PyTorch and here, from the same weights, dropout off; cross entropy where the last axis "
        "are classes, else the mean of squares against random numbers. The older exporter writes "
        "BatchNormalization as it is, with stored statistics, and in "
        f"{', '.join(batch)} with those of the batch, both in float64: from batches of {BATCH} "
        "rows PyTorch's own losses in float32 and float64 are 1 % apart.", "",
        "| network | family | exporter | rate | first loss | PyTorch's last | ours "
        "| furthest apart, relative |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |", *lines, ""])


if __name__ == "__main__":
    sys.exit(main())
