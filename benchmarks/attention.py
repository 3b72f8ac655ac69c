"""Attention against fused kernels of PyTorch and ONNX Runtime: results, and results with
gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import machine, peers
from benchmarks.programs import call, input_like
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS

HEADS, DIM = 8, 64
LENGTHS = (128, 256, 512, 1024, 4096)


def run(threads: list[int], effort: Effort) -> Section:
    """8 heads of 64, bound calls."""
    s = Section("attention", "Attention, 8 heads of 64, float32",
                "the FMA peak: two products of queries by keys, six of them with gradients, which "
                "compute the scores again. The exponentials take a tenth of that time. Causal "
                "rows count the work of all pairs, hidden or not.")
    quick = effort.least <= 3
    for n in threads:
        peers.set_threads(n)
        for length in LENGTHS[:3] if quick else LENGTHS:
            for causal in (False, True):
                for backward in (False, True):
                    _case(s, length, causal, backward, n, effort)
    return s


def _case(s: Section, length: int, causal: bool, backward: bool, threads: int,
          effort: Effort) -> None:
    random = np.random.default_rng(1)
    arrays = {name: random.standard_normal((HEADS, length, DIM), dtype=np.float32)
              for name in ("q", "k", "v", "dy")}
    q, k, v, dy = (input_like(name, a) for name, a in arrays.items())
    y = OPS.attention(q, k, v, causal=causal)
    if backward:
        slopes = gradients(OPS.sum(y * dy), [q, k, v])
        y = OPS.concat(*(OPS.reshape(x, (1, *x.shape)) for x in (y, *slopes)), axis=0)
    else:
        del arrays["dy"]
    ours = call(y, arrays, threads)
    contestants = [Contestant("ztorch", ours)]
    errors = {"ztorch": 0.0}  # against PyTorch, where that is here
    if torch := peers.module("torch"):
        theirs = _torch(torch, arrays, causal)
        contestants.append(Contestant("torch (eager)", theirs))
        want = np.stack([x.detach().numpy() for x in theirs()])
        errors["ztorch"] = peers.worst(
            ours.outputs["y"], want if backward else want[0])
    if not backward:
        joined = {n: _joined(a) for n, a in arrays.items()}  # positions by heads and their numbers
        if runtime := peers.onnx_op("MultiHeadAttention", joined, threads, "com.microsoft",
                                    num_heads=HEADS, unidirectional=int(causal)):
            contestants.append(Contestant("ONNX Runtime", runtime))
            errors["ONNX Runtime"] = peers.worst(runtime(), _joined(ours.outputs["y"]))
    name = f"{length}{', causal' if causal else ''}{', with gradients' if backward else ''}"
    error = peers.checked(name, 1e-3, **errors)
    contestants.append(machine.peak(threads))
    timings = compare(contestants, threads == 1, effort)
    flops = (6 if backward else 2) * 2.0 * HEADS * length * length * DIM
    share = timings[-1].ratio * flops / machine.fma_call(threads)[1]
    s.compared(name, threads, timings[:-1], error,
               **{"GFLOP/s": f"{flops / timings[0].seconds / 1e9:.1f}", "of peak": f"{share:.0%}"})


def _joined(x: np.ndarray) -> np.ndarray:
    """The heads of each position side by side, in a batch of one."""
    return np.ascontiguousarray(x.swapaxes(0, 1).reshape(1, -1, HEADS * DIM))


def _torch(torch: Any, arrays: dict[str, np.ndarray], causal: bool) -> Any:
    """PyTorch's attention as something to call; with gradients if there is a `dy`."""
    slope = torch.from_numpy(arrays["dy"])[None] if "dy" in arrays else None
    inputs = [torch.from_numpy(arrays[name])[None].requires_grad_(slope is not None)
              for name in "qkv"]

    def once() -> list[Any]:
        y = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=causal)
        slopes = torch.autograd.grad(y, inputs, slope) if slope is not None else ()
        return [x[0] for x in (y, *slopes)]

    return once
