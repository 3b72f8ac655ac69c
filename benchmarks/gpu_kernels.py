"""The main kernels on a GPU, beside what the performance model predicts of them and PyTorch's own.

A call is replayed again and again before anybody waits, so that its start does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import gpu_peers, peers
from benchmarks.gpu_cases import Case, Measured, Sizes, measured
from benchmarks.gpu_predictions import (
    KERNELS,
    SIZES,
    MainKernel,
    best_share,
    predicted_seconds,
)
from benchmarks.report import duration
from benchmarks.timing import Effort
from ztorch.codegen.targets import TARGETS
from ztorch.compile import pipeline
from ztorch.dtypes import from_storage, to_storage
from ztorch.errors import Unsupported
from ztorch.graph.value import Graph
from ztorch.machines.gpus import gpu_of_device
from ztorch.runtime.devices import ListedDevice, resolve

REPEATS = 20  # calls between two waits
BLOCK = 1 << 20  # random numbers, of which long inputs repeat a block
ALLOWED = {"f32": 1e-4, "tf32": 5e-3, "f16": 1e-2, "bf16": 3e-2}  # beside PyTorch in float32


def cases(d: ListedDevice, z: Sizes) -> list[Case]:
    """A row for each main kernel and size; none where a processor plays the GPU."""
    if d.kind == "cpu":
        return []
    return [Case(name, partial(_run, d, name, kernel))
            for name, kernel in {**KERNELS, **SIZES}.items()]


def _run(d: ListedDevice, name: str, kernel: MainKernel, effort: Effort) -> Measured:
    graph = kernel.make()
    ours = pipeline.build({"predict": graph}, d.id, "op", precision=kernel.precision).bind(
        "predict")
    arrays = {v.attrs["name"]: _numbers(v.shape, k) for k, v in enumerate(graph.leaves("input"))}
    stored = {v.attrs["name"]: v.dtype for v in graph.leaves("input")}
    for port, array in arrays.items():
        ours.inputs[port][...] = to_storage(stored[port], array)
    ours()
    runs: dict[str, Callable[[], object]] = {"ztorch": _repeated(ours)}
    if cpp := _as_cpp(d, graph, kernel.precision):
        for port, array in arrays.items():
            cpp.inputs[port][...] = to_storage(stored[port], array)
        cpp()
        for port, value in graph.outputs.items():  # the same kernels; sums may be fused otherwise
            got, want = (from_storage(value.dtype, c.outputs[port]) for c in (cpp, ours))
            peers.checked(f"{name} as CUDA C++ on {d.id}", ALLOWED[kernel.dtype],
                          ztorch=peers.worst(got, want))
        runs["ztorch as CUDA C++"] = _repeated(cpp)
    errors = {}
    torch = gpu_peers.torch_on(d)
    if torch and (theirs := _theirs(torch, name, kernel)):
        torch.backends.cuda.matmul.allow_tf32 = kernel.dtype == "tf32"
        wide = {port: torch.from_numpy(a).cuda() for port, a in arrays.items()}
        kinds = {"f16": torch.float16, "bf16": torch.bfloat16}
        there = {p: x.to(kinds.get(stored[p].name, torch.float32)) for p, x in wide.items()}
        if graph.outputs:
            y = graph.outputs["y"]
            got = torch.from_numpy(np.ascontiguousarray(
                from_storage(y.dtype, ours.outputs["y"]), dtype=np.float32)).cuda()
            allowed, torch.backends.cuda.matmul.allow_tf32 = (
                torch.backends.cuda.matmul.allow_tf32, False)
            want = theirs({p: x.float() for p, x in there.items()}).float()
            torch.backends.cuda.matmul.allow_tf32 = allowed
            errors["ztorch"] = float((got - want).abs().max() / want.abs().max())
            del got, want
        replay = gpu_peers.captured(lambda: theirs(there))

        def peer() -> None:
            for _ in range(REPEATS):
                replay()
            torch.cuda.synchronize()

        runs["PyTorch"] = peer
    error = (peers.checked(f"{name} on {d.id}", ALLOWED[kernel.dtype], **errors) if errors else
             np.nan)  # the rows of parity compare it
    work, unit = (kernel.flops / 1e12, "TFLOP/s") if kernel.flops else (kernel.nbytes / 1e9, "GB/s")
    result = measured(runs, error, effort, work, unit)
    result = result._replace(timings=[t.shared_by(REPEATS) for t in result.timings])
    seconds = result.timings[0].seconds
    share, predicted = "", predicted_seconds({"predict": graph}, d, kernel.precision)
    if row := gpu_of_device(d.name):
        share = f", {best_share(seconds, kernel.flops, kernel.nbytes, row, kernel.dtype):.0%}"
    beside = duration(predicted["predict"] - row.step_us * 1e-6) if row and predicted else ""
    return result._replace(rate=f"{work / seconds:.3g} {unit}{share}", predicted=beside)


def _as_cpp(d: ListedDevice, graph: Graph, precision: str) -> Any:
    """The same kernels as CUDA C++ for the chip of a device, by NVRTC; None where it has none."""
    target = TARGETS.get(f"cuda:c:{d.chip}")
    if target is None or not d.id.startswith("cuda:"):
        return None
    try:
        compiled = pipeline.compile_functions({"predict": graph}, target.with_precision(precision),
                                              "op")
    except Unsupported as lack:
        print(f"without CUDA C++: {lack}", flush=True)
        return None
    return pipeline.start(compiled.spec, compiled.code, compiled.params, None,
                          resolve(d.id).ordinal).bind("predict")


def _numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    block = np.random.default_rng(seed).standard_normal(BLOCK - seed, np.float32)
    numbers: np.ndarray = np.resize(block, shape)
    return numbers


def _repeated(call: Any) -> Callable[[], object]:
    device, recording = call.ports.device, call.ports.recording

    def run() -> None:
        for _ in range(REPEATS):
            device.run(recording)
        device.synchronize()

    return run


def _theirs(torch: Any, name: str, kernel: MainKernel) -> Callable[[dict[str, Any]], Any] | None:
    """The same in PyTorch's words; None: it has none that could be compared."""
    nn = torch.nn.functional

    def convolution(h: dict[str, Any]) -> Any:
        return nn.conv2d(h["x"].permute(0, 3, 1, 2), weights(h["w"]), padding=1).permute(0, 2, 3, 1)

    def weights(w: Any) -> Any:  # in the order that PyTorch wants, once
        if w.dtype not in arranged:
            arranged[w.dtype] = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        return arranged[w.dtype]

    def attention(h: dict[str, Any]) -> Any:
        return nn.scaled_dot_product_attention(h["q"], h["k"], h["v"])

    def gradient(h: dict[str, Any]) -> Any:
        operands = [h[n].detach().requires_grad_() for n in "qkv"]
        y = attention(dict(zip("qkv", operands, strict=True)))
        return torch.autograd.grad(y, operands, h["slope"])[0]

    arranged: dict[Any, Any] = {}
    words: dict[str, Callable[[dict[str, Any]], Any]] = {
        "matrix": lambda h: h["a"] @ h["b"],
        "convolution": convolution,
        "attention": attention,
        "gradients of attention": gradient,
        "softmax": lambda h: torch.softmax(h["x"], -1),
        "layer": lambda h: nn.layer_norm(h["x"], h["x"].shape[-1:]),
        "gelu": lambda h: nn.gelu(h["x"]),
        "sum of columns": lambda h: h["x"].sum(0),
        "sum of rows": lambda h: h["x"].sum(1),
        "transpose": lambda h: h["x"].T.contiguous(),
    }
    return next((word for start, word in words.items() if name.startswith(start)), None)
