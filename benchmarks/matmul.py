"""Matrix products against torch.mm, ONNX Runtime and NumPy."""

from __future__ import annotations

import numpy as np

from benchmarks import machine, peers
from benchmarks.programs import call, input_like, weight
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch.graph.op import OPS

SQUARE = (64, 128, 256, 512, 1024, 2048)
SKINNY = ((1, 512, 784), (8, 512, 784), (32, 512, 784), (48, 3072, 768))  # (M, N, K)


def run(threads: list[int], effort: Effort) -> Section:
    """C = A @ B with all of it in place already; nobody allocates."""
    s = Section("matmul", "Matrix products, float32",
                "the FMA peak, but for M = 1, where every weight is read once for two operations: "
                "there it is the bandwidth of the cache that holds B. At 64 the call itself "
                "begins to count. `weights` means that B is a weight of the program, which the "
                "compiler may arrange once; torch.mm has no such chance. Where rows of B evict one "
                "another, the first tile copies its panel for the others; where rows of A do not "
                "fit the L2 cache, B is copied first.")
    quick = effort.least <= 3
    shapes = [(n, n, n) for n in (SQUARE[:4] if quick else SQUARE)] + list(SKINNY)
    for n in threads:
        peers.set_threads(n)
        for shape in shapes:
            _case(s, *shape, n, effort)
    return s


def _case(s: Section, m: int, n: int, k: int, threads: int, effort: Effort) -> None:
    random = np.random.default_rng(1)
    a = random.standard_normal((m, k), dtype=np.float32)
    b = random.standard_normal((k, n), dtype=np.float32)
    c = np.empty((m, n), np.float32)
    arrays = {"a": a, "b": b}
    ours = call(OPS.matmul(input_like("a", a), input_like("b", b)), arrays, threads)
    contestants = [Contestant("ztorch", ours)]
    true = a.astype(np.float64) @ b.astype(np.float64)
    errors = {"ztorch": peers.worst(ours.outputs["y"], true)}
    if m < 64:
        fixed = call(OPS.matmul(input_like("a", a), weight("b", b)), {"a": a}, threads)
        contestants.append(Contestant("ztorch, weights", fixed))
        errors["ztorch with weights"] = peers.worst(fixed.outputs["y"], true)
    torch = peers.module("torch")
    if torch:
        ta, tb, tc = (torch.from_numpy(x) for x in (a, b, c.copy()))
        contestants.append(Contestant("torch.mm (eager)", lambda: torch.mm(ta, tb, out=tc)))
        errors["torch.mm"] = peers.worst(torch.mm(ta, tb), true)
    if runtime := peers.onnx_op("MatMul", arrays, threads):
        contestants.append(Contestant("ONNX Runtime", runtime))
        errors["ONNX Runtime"] = peers.worst(runtime(), true)
    contestants.append(Contestant("numpy", lambda: np.matmul(a, b, out=c)))
    error = peers.checked(f"{m}x{n}x{k}", 1e-4, **errors)
    contestants.append(machine.peak(threads))
    if torch:
        with torch.inference_mode():
            timings = compare(contestants, threads == 1, effort)
    else:
        timings = compare(contestants, threads == 1, effort)
    # The peak took its turns between the others, so their ratio is free of clock changes.
    peak = machine.fma_call(threads)[1] / timings[-1].seconds
    flops = 2.0 * m * n * k
    share = timings[-1].ratio * flops / machine.fma_call(threads)[1]
    s.compared(f"{m}x{n}x{k}" if m < 64 else f"{m}", threads, timings[:-1], error,
               **{"GFLOP/s": f"{flops / timings[0].seconds / 1e9:.1f}", "of peak": f"{share:.0%}"})
    s.results[-1]["peak"] = peak
