"""The limits of recurrent layers on this machine, beside which they are timed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks import machine
from benchmarks.programs import call, fill, input_like
from benchmarks.report import Section, duration
from benchmarks.timing import Contestant, Effort, compare
from ztorch.compile import pipeline
from ztorch.graph.op import OPS
from ztorch.graph.value import Graph
from ztorch.ops import scan
from ztorch.runtime.executable import HostCall

LAYERS = {"LSTM": 4, "GRU": 3}  # gates of each
NARROW = 128  # up to which width twice the best peer's speed is wanted, and else 1.3 times
MEETINGS = 2000  # of workers, timed together
GATE_ROWS = 256  # of gates alone: their inputs fit in the second cache


class KernelBenchmark:
    """A comparison beside what no program could do without: products at the FMA peak, but those in
    turns no faster than a core reads the weights, and gates."""

    def __init__(self, name: str, case: tuple[int, int, int], threads: int, large: int,
                 in_turns: int):
        """
        Args:
            name: The layer.
            case: Steps, batch and width.
            threads: How many share the work.
            large: Products of all steps at once.
            in_turns: Products that each step waits for.
        """
        self.case, self.threads, self.large, self.in_turns = case, threads, large, in_turns
        self.steps, batch, width = case
        self.flops = 2.0 * self.steps * batch * width * LAYERS[name] * width  # of one product
        self.weights = 4.0 * width * LAYERS[name] * width  # bytes that a turn reads
        self.elements = self.steps * batch * width
        self.gates, self.meeting = _gates(name, width, threads), _meetings(threads)
        self.read, self.bytes = machine.read_call(threads, int(self.weights))

    def enter(self, s: Section, label: str, contestants: list[Contestant], error: float,
              effort: Effort, **more: str) -> None:
        """Adds the line of the comparison."""
        limits = [machine.peak(self.threads), Contestant("reading", self.read),
                  Contestant("gates", self.gates), Contestant("meetings", self.meeting)]
        timings = compare([*contestants, *limits], self.threads == 1, effort)
        own, best = timings[0].seconds, min((t.ratio for t in timings[1:-4]), default=0.0)
        peak, reading, gates, meetings = (t.ratio * own for t in timings[-4:])
        if self.threads > 1:
            more["workers meet in"] = duration(meetings / MEETINGS)
        product = self.flops * peak / machine.fma_call(self.threads)[1]
        turns = max(product, self.steps * self.weights * reading / self.bytes)
        limit = (self.large * product + self.in_turns * turns
                 + gates * self.elements / (GATE_ROWS * self.case[2]))
        share = (self.large + self.in_turns) * product / own
        bar = 2.0 if self.case[2] <= NARROW else 1.3
        verdict = "holds" if best >= bar else "beyond the limit" if best * own < bar * limit else (
            f"missed: at {limit / own:.0%} of the limit, takes {bar * limit / (best * own):.0%}")
        s.compared(label, self.threads, timings[:-4], error, **{
            "of FMA peak": f"{share:.0%}", "limit": duration(limit),
            "best peer at the limit": f"x{best * own / limit:.2f}", "bar": f"x{bar:g} {verdict}"},
            **more)


def _gates(name: str, width: int, threads: int) -> Callable[[], object]:
    """The gates of some rows, from the sums of both products: by element, and nothing else."""
    shapes = [(GATE_ROWS, n * width) for n in ((4, 1) if name == "LSTM" else (3, 1, 3))]
    arrays = [np.random.default_rng(k).standard_normal(shape, np.float32)
              for k, shape in enumerate(shapes)]
    x, state, *inner = (input_like(f"x{k}", a) for k, a in enumerate(arrays))
    parts = [[v[:, k * width:(k + 1) * width] for k in range(v.shape[1] // width)]
             for v in (x, *inner)]
    if name == "LSTM":
        [[into, forget, cell, out]] = parts
        cell = OPS.sigmoid(forget) * state + OPS.sigmoid(into) * OPS.tanh(cell)
        results = {"h": OPS.sigmoid(out) * OPS.tanh(cell), "c": cell}
    else:
        (z, r, new), (rz, rr, rnew) = parts
        z = OPS.sigmoid(z + rz)
        new = OPS.tanh(new + OPS.sigmoid(r + rr) * rnew)
        results = {"h": z * state + (1.0 - z) * new}
    bound = pipeline.build({"predict": Graph(results)}, "cpu", "gates", threads).bind("predict")
    fill(bound, {f"x{k}": a for k, a in enumerate(arrays)})
    run_once: Callable[[], object] = bound
    return run_once


def _meetings(threads: int) -> Callable[[], object]:
    """A loop in which each worker reads what another one has just written, and nothing else."""
    x = np.ones(64, np.float32)
    last, _ = scan(lambda state, _: (OPS.flip(state, axis=(0,)) * 0.5 + 1.0, None),
                       input_like("x", x), length=MEETINGS // 2)  # an iteration has two kernels
    bound = call(last, {"x": x}, threads)
    assert isinstance(bound, HostCall)
    bound.workers = threads  # by themselves, so few elements would have one
    run_once: Callable[[], object] = bound
    return run_once
