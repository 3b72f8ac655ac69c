"""Predictions of networks of images, imported from ONNX files that PyTorch wrote, beside PyTorch,
ONNX Runtime and OpenVINO on the same files."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.image_networks import NETWORKS
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare


def run(threads: list[int], effort: Effort) -> Section:
    """One prediction of each network through its public call."""
    s = Section("images", "Networks of images, float32, channels first",
                "the FMA peak for wide convolutions, the bandwidth of caches for depthwise ones "
                "and for weights at batch 1. Weights are random. `best` is the time of the best "
                "peer over ours.")
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

    make, shape = NETWORKS[name]
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
    best = min(t.ratio for t in timings[1:])
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
