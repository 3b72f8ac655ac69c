"""Transformers: a prediction from an ONNX file, and a step of training."""

from __future__ import annotations

from benchmarks import from_onnx, peers
from benchmarks.report import Section
from benchmarks.timing import Effort
from benchmarks.transformer_networks import NETWORKS, TRAINED


def run(threads: list[int], effort: Effort) -> Section:
    """One prediction of each network through its public call."""
    s = Section("transformers", "Transformers, float32, one prediction from an ONNX file",
                "the FMA peak; for BERT-base at batch 1 also its 340 MB of weights, which are read "
                "from memory. Weights are random. `best` is the time of the best peer over ours, "
                "of those that keep to the level.")
    _run(s, False, threads, effort)
    return s


def run_training(threads: list[int], effort: Effort) -> Section:
    """One step of Adam."""
    s = Section("transformers train", "Transformers, float32, a step of Adam",
                "the FMA peak: three products where a prediction has one, and for few rows the "
                "weights and moments of Adam, which are read and written. The error is that of the "
                f"loss after {from_onnx.STEPS} steps.")
    _run(s, True, threads, effort)
    return s


def _run(s: Section, training: bool, threads: list[int], effort: Effort) -> None:
    torch = peers.module("torch")
    if not torch or not peers.module("onnx"):
        return
    networks = TRAINED if training else NETWORKS
    for n in threads:
        peers.set_threads(n)
        for name in list(networks)[:1] if effort.least <= 3 else networks:
            torch.manual_seed(0)
            net, x = networks[name].make(), networks[name].example()
            measure = from_onnx.train if training else from_onnx.predict
            measure(s, name, net.train(training), x, n, effort)
