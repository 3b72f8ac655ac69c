"""A whole model: MLP inference at several batch sizes, and one model at every SIMD level."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine, peers
from benchmarks.programs import call, input_like
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch.graph.op import OPS
from ztorch.runtime.devices import devices

BATCHES = (1, 8, 32, 128)


def run(threads: list[int], effort: Effort) -> Section:
    """784-512-512-10 from an input in memory to probabilities in memory."""
    s = Section("mlp", "MLP 784-512-512-10, one prediction",
                "at batch 1 reading 2.7 MB of weights (L2 or L3 bandwidth), from batch 8 on the "
                "FMA peak. `ztorch` is the bound call, `predict_on_batch` the same through the "
                "public method, which checks and copies; PyTorch runs in inference_mode.")
    model = peers.mlp()
    weights = model.get_weights()
    for n in threads:
        peers.set_threads(n)
        for batch in BATCHES:
            x = np.random.default_rng(2).random((batch, 784), np.float32)
            _case(s, model, weights, x, n, effort)
    return s


def _case(s: Section, model: Any, weights: peers.Weights, x: np.ndarray, threads: int,
          effort: Effort) -> None:
    true = peers.numpy_mlp(weights, x)
    program = model.compile("cpu", batch_size=len(x), threads=threads)
    ours = program.executable.bind("predict")
    ours.inputs["x"][...] = x
    ours()
    errors = {"ztorch": peers.worst(ours.outputs["y"], true),
              "predict_on_batch": peers.worst(program.predict_on_batch(x), true)}
    contestants = [Contestant("ztorch", ours),
                   Contestant("ztorch predict_on_batch", lambda: program.predict_on_batch(x))]
    torch = peers.module("torch")
    with torch.inference_mode() if torch else nullcontext(), tempfile.TemporaryDirectory() as tmp:
        if torch:
            eager, tx = peers.torch_mlp(weights), torch.from_numpy(x)
            contestants.append(Contestant("PyTorch eager", lambda: eager(tx)))
            errors["PyTorch"] = peers.worst(eager(tx), true)
            fast = peers.compiled(eager)
            if fast:
                contestants.append(Contestant("torch.compile", lambda: fast(tx)))
                errors["torch.compile"] = peers.worst(fast(tx), true)
        path = Path(tmp, "mlp.onnx")
        session = peers.write_onnx(weights, len(x), path) and peers.onnx_session(path, threads)
        if session:
            contestants.append(Contestant("ONNX Runtime", lambda: session.run(None, {"x": x})))
            errors["ONNX Runtime"] = peers.worst(session.run(None, {"x": x})[0], true)
        error = peers.checked(f"MLP, batch {len(x)}", 1e-4, **errors)
        timings = compare([*contestants, machine.peak(threads)], threads == 1, effort)
    flops = 2.0 * len(x) * sum(w.size for w in weights[::2])
    share = timings[-1].ratio * flops / machine.fma_call(threads)[1]
    read = sum(w.nbytes for w in weights) / timings[0].seconds
    s.compared(f"batch {len(x)}", threads, timings[:-1], error,
               **{"of FMA peak": f"{share:.0%}", "weights read": f"{read / 1e9:.1f} GB/s"})


def run_levels(threads: list[int], effort: Effort) -> Section:
    """Our own code at every level this processor has, the best level first."""
    s = Section("levels", "SIMD levels of ztorch, one thread",
                "vectors of 4, 8 and 16 numbers allow x4, x8 and x16 over scalar code where "
                "arithmetic limits; twice as much again with fused multiply-add. Processors that "
                "split 512-bit operations, or lower their clock for them, gain less.")
    levels = [v.name for v in devices()[0].levels if v.available][::-1]
    best = machine.target().name
    levels.sort(key=lambda name: name != best)  # stable: the rest stays in order
    for case, y, arrays, true in _ops():
        calls = [call(y, arrays, 1, f"cpu:{level}") for level in levels]
        errors = {f"cpu:{level}": peers.worst(c.outputs["y"], true)
                  for level, c in zip(levels, calls, strict=True)}
        error = peers.checked(case, 1e-4, ztorch=max(errors.values()), **errors)
        timings = compare([Contestant(f"cpu:{level}", c)
                           for level, c in zip(levels, calls, strict=True)], True, effort)
        s.compared(case, 1, timings, error)
    return s


def _ops() -> list[tuple[str, Any, dict[str, np.ndarray], np.ndarray]]:
    random = np.random.default_rng(3)
    a, b = (random.standard_normal((256, 256), dtype=np.float32) for _ in "ab")
    x = random.standard_normal((128, 1024), dtype=np.float32)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(-1, keepdims=True))
    return [
        ("matmul 256", OPS.matmul(input_like("a", a), input_like("b", b)), {"a": a, "b": b},
         a.astype(np.float64) @ b.astype(np.float64)),
        ("exp 128x1024", OPS.exp(input_like("x", x)), {"x": x}, np.exp(wide)),
        ("softmax 128x1024", OPS.softmax(input_like("x", x)), {"x": x},
         e / e.sum(-1, keepdims=True)),
    ]
