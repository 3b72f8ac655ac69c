"""Predictions of networks of images, imported from ONNX files that PyTorch wrote, beside PyTorch,
ONNX Runtime and OpenVINO on the same files: `python -m benchmarks.images [--only U-Net,VGG]
[--threads 1,2] [--level avx2]`. Rows of other networks and numbers of threads stay."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from benchmarks import from_onnx, machine, peers, report
from benchmarks.image_networks import NETWORKS, TORCHVISION
from benchmarks.level import FAIR, limited
from benchmarks.report import Section
from benchmarks.timing import FULL, Effort

RESULTS = Path(__file__).parent / "results"


def main(arguments: list[str] | None = None) -> int:
    """Measures the networks that are asked for, and writes their table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.images", description=__doc__)
    parser.add_argument("--only", default="", help="parts of names, with commas; default: all")
    parser.add_argument("--threads", default="1", help="thread counts, such as 1,2")
    parser.add_argument("--level", default="", choices=["", "avx2"],
                        help="without AVX-512, which the peers are told as well")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    asked = parser.parse_args(arguments)
    lower = limited("benchmarks.images", asked.level,
                    sys.argv[1:] if arguments is None else arguments)
    facts = {**machine.describe(), **({"SIMD level": FAIR} if lower else {})}
    stem = "-".join(part for part in ("images", machine.slug(), asked.level) if part)
    s = _section()
    before = report.sections(asked.out / f"{stem}.json").get(s.key, s)
    known = [*NETWORKS, *(TORCHVISION if peers.module("torchvision") else {})]
    names = [name for name in known if any(part in name for part in asked.only.split(","))]
    threads = [int(n) for n in asked.threads.split(",")]
    s.names, s.notes = before.names, [n for n in before.notes if not any(
        n.startswith(f"{name}, {t} thread") for name in names for t in threads)]
    s.lines, s.results = ([row for row in rows if row["case"] not in names
                           or int(row["threads"]) not in threads]
                          for rows in (before.lines, before.results))
    order = [*NETWORKS, *TORCHVISION]
    for n in threads:
        peers.set_threads(n)
        for name in names:
            network(s, name, n, FULL)
            s.lines.sort(key=lambda row: (int(row["threads"]), order.index(row["case"])))
            report.write(asked.out, stem, facts, [s], quick=False)
    return 0


def _section() -> Section:
    return Section("images", "Networks of images, float32, channels first",
                   "the FMA peak for wide convolutions, the bandwidth of caches for depthwise ones "
                   "and for weights at batch 1. Images are turned channels last at the edges of a "
                   "network: on a Zen 4 a sixth of the time of the depthwise block, whose product "
                   "is at 99 % of the peak. Weights are random. `best` is the time of the best "
                   "peer over ours, of those that keep to the level.")


def run(threads: list[int], effort: Effort) -> Section:
    """One prediction of each network through its public call."""
    s = _section()
    quick = effort.least <= 3
    for n in threads:
        peers.set_threads(n)
        for name in list(NETWORKS)[:1] if quick else NETWORKS:
            network(s, name, n, effort)
    return s


def network(s: Section, name: str, threads: int, effort: Effort) -> None:
    """The line of one network."""
    torch, onnx = peers.module("torch"), peers.module("onnx")
    if not torch or not onnx:
        return
    make, shape = (NETWORKS | TORCHVISION)[name]
    torch.manual_seed(0)
    net, x = make().eval(), np.random.default_rng(1).standard_normal(shape, np.float32)
    last = make().to(memory_format=torch.channels_last).eval()
    last.load_state_dict(net.state_dict())
    images = torch.from_numpy(x).contiguous(memory_format=torch.channels_last)
    from_onnx.predict(s, name, net, x, threads, effort,
                      {"channels last": from_onnx.without_gradients(last, images)})


if __name__ == "__main__":
    sys.exit(main())
