"""Predictions of networks of images, imported from ONNX files that PyTorch wrote, beside PyTorch,
ONNX Runtime and OpenVINO on the same files: `python -m benchmarks.images [--only U-Net,VGG]
[--threads 1,2] [--level avx2]`. Rows of other networks and numbers of threads stay."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine, peers, report
from benchmarks.image_networks import NETWORKS, TORCHVISION
from benchmarks.level import FAIR, limited
from benchmarks.report import Section
from benchmarks.timing import FULL, Contestant, Effort, compare

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
    import ztorch as zt

    make, shape = (NETWORKS | TORCHVISION)[name]
    torch.manual_seed(0)
    net, x = make().eval(), np.random.default_rng(1).standard_normal(shape, np.float32)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        true = net.double()(torch.from_numpy(x).double()).numpy()
        net.float()
        path = Path(folder) / "net.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(net, (torch.from_numpy(x),), path, dynamo=False, input_names=["x"])
        program = zt.onnx.load(path).compile("cpu", batch_size=shape[0], threads=threads)
        calls: dict[str, Callable[[], Any]] = {"ztorch": lambda: program.predict_on_batch(x)}
        tx = torch.from_numpy(x)
        last, tx_last = make().to(memory_format=torch.channels_last).eval(), tx.contiguous(
            memory_format=torch.channels_last)
        last.load_state_dict(net.state_dict())
        calls["PyTorch eager"] = _without_gradients(torch, lambda: net(tx))
        calls["channels last"] = _without_gradients(torch, lambda: last(tx_last))
        session = peers.onnx_session(path, threads)
        if session:
            calls["ONNX Runtime"] = lambda: session.run(None, {"x": x})[0]
        vino = openvino(path, threads)
        if vino:
            calls["OpenVINO"] = lambda: vino(x)[0]
        errors = {label: peers.worst(call(), true) for label, call in calls.items()}
        error = peers.checked(name, 1e-4, **errors)
        timings = compare([Contestant(label, call) for label, call in calls.items()],
                          threads == 1, effort)
    hidden = "ATEN_CPU_CAPABILITY" in os.environ  # AVX-512, but not from ONNX Runtime
    best = min(t.ratio for t in timings[1:] if not (hidden and t.name == "ONNX Runtime"))
    s.compared(name, threads, timings, error, best=f"{best:.2f}")


def _without_gradients(torch: Any, call: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with torch.inference_mode():
            return call()

    return run


def openvino(path: Path, threads: int) -> Any:
    """A network compiled by OpenVINO in full precision, or None."""
    vino = peers.module("openvino")
    if not vino:
        return None
    core = vino.Core()
    return core.compile_model(core.read_model(str(path)), "CPU", {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32"})


if __name__ == "__main__":
    sys.exit(main())
