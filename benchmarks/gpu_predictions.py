"""The performance model's figures for the main kernels and for whole steps, without a GPU."""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import ztorch.ops  # noqa: F401 (fills OPS)
from benchmarks import report
from benchmarks.report import Section, duration
from ztorch.codegen import targets
from ztorch.compile.targeting import target_for
from ztorch.dtypes import DType, bf16, f16, f32
from ztorch.errors import Unsupported
from ztorch.graph.autodiff import gradients
from ztorch.graph.flops import flops
from ztorch.graph.op import OPS, leaf
from ztorch.graph.value import Graph, Value
from ztorch.machines.gpus import Gpu, gpu, gpu_of_device
from ztorch.optimizers.adam import Adam
from ztorch.optimizers.slots import Slots
from ztorch.performance.step import FunctionPrediction, predict_functions
from ztorch.runtime.devices import ListedDevice, resolve

GPUS = ("H200", "A100")
METHOD = (
    "**Predictions, not measurements**: computed from the generated kernels by `ztorch explain`'s "
    "model, with nothing run. Data of single kernels are in memory, not in a cache. `of the best` "
    "is the time that the FLOPs or bytes need at the GPU's peak (of matrix instructions on "
    "float16, bfloat16 and tf32, of threads on float32) or at the rate of a copy, over the "
    "predicted time. `at the held clock` is the same with the peak at the clock that all units "
    "hold while they multiply, which on an H200 is 1.55 of 1.98 GHz. `goal` is our aim of the "
    "former. Clocks under load, rates of memory and gaps between kernels are those that an H200 "
    "had on 28 November 2026, beside whose times the model is off by 5 % (median; "
    "[each row](2026-11-28-nvidia-h200-predicted.md)); for an A100 they are guesses. That a "
    "kernel starts half a microsecond behind another one, where it may start early, is a guess on "
    "both. Registers and spills of single kernels are those of NVIDIA's assembler where it is "
    "installed.")


class MainKernel(NamedTuple):
    """An operation that has to be fast by itself."""

    make: Callable[[], Graph]
    flops: float  # that it needs
    nbytes: float  # that it must read and write
    dtype: str  # of its matrix instructions; f32: threads compute
    goal: float  # share of the best possible rate that it should reach
    precision: str = "float32"  # of products of float32


class Step(NamedTuple):
    """A function of a model of the zoo."""

    model: str
    batch: int
    dtype: str
    function: str
    precision: str = "float32"

    def product_rate(self, gpu: Gpu) -> float:
        """FLOP/s of its products on a GPU."""
        if self.precision == "high":  # three products of parts, in tf32
            return gpu.matrix_rate("tf32") / 3
        return gpu.matrix_rate("bf16" if self.dtype == "mixed_bfloat16" else "") or gpu.f32_rate


def _input(name: str, d: DType, *shape: int) -> Value:
    return leaf("input", name, shape, d)


def _product(m: int, n: int, k: int, d: DType, precision: str = "float32") -> MainKernel:
    return MainKernel(
        lambda: Graph({"y": OPS.matmul(_input("a", d, m, k), _input("b", d, k, n))}),
        2.0 * m * n * k, (m * k + k * n + m * n) * d.bytes,
        "tf32" if precision == "tf32" else d.name, 0.75, precision)


def _convolution(images: int, side: int, channels: int, d: DType = bf16,
                 precision: str = "float32") -> MainKernel:
    x, w = (images, side, side, channels), (3, 3, channels, channels)
    moved = 2.0 * images * side**2 * channels + 9 * channels**2
    return MainKernel(
        lambda: Graph({"y": OPS.conv2d(_input("x", d, *x), _input("w", d, *w),
                                       padding="same")}),
        18.0 * images * side**2 * channels**2, moved * d.bytes, d.name, 0.65, precision)


def _attention(heads: int, length: int, size: int) -> MainKernel:
    return MainKernel(
        lambda: Graph({"y": OPS.attention(*(_input(n, bf16, 1, heads, length, size)
                                            for n in "qkv"))}),
        4.0 * heads * length**2 * size, 4.0 * heads * length * size * bf16.bytes, "bf16", 0.6)


def _attention_gradients(heads: int, length: int, size: int) -> MainKernel:
    """Attention and its gradients, of which `y` is that of the queries."""
    def make() -> Graph:
        q, k, v, slope = (_input(n, bf16, 1, heads, length, size) for n in ("q", "k", "v", "slope"))
        result = OPS.attention(q, k, v)
        slopes = gradients(OPS.sum(result * slope), [q, k, v])
        return Graph({"result": result, **dict(zip(("y", "dk", "dv"), slopes, strict=True))})

    return MainKernel(make, 14.0 * heads * length**2 * size,
                      7.0 * heads * length * size * bf16.bytes, "bf16", 0.6)


def _rows(make: Callable[[Value], Value], rows: int, columns: int,
          passes: float = 2.0) -> MainKernel:
    return MainKernel(lambda: Graph({"y": make(_input("x", f32, rows, columns))}), 0.0,
                      passes * rows * columns * f32.bytes, "f32", 0.88)


def _adam(n: int) -> MainKernel:
    def make() -> Graph:
        weight = leaf("state", "w", (n,), f32, None)
        count, updates = _input("step", f32), dict[Value, Value]()
        slots = Slots(weight, updates, count)
        slots.state("m", (n,))
        change = Adam().step(weight, _input("gradient", f32, n), count * 1e-3, slots)
        new = {v.attrs["name"]: value for v, value in updates.items()}
        return Graph({}, {"w": weight - change, **new})

    return MainKernel(make, 0.0, 7.0 * n * f32.bytes, "f32", 0.88)  # reads four, writes three


KERNELS: dict[str, MainKernel] = {
    "matrix product 4096, bfloat16": _product(4096, 4096, 4096, bf16),
    "matrix product 4096, float16": _product(4096, 4096, 4096, f16),
    "matrix product 4096, tf32": _product(4096, 4096, 4096, f32, "tf32"),
    "matrix product 4096, float32": _product(4096, 4096, 4096, f32),
    "matrix product 4096, float32 in parts": _product(4096, 4096, 4096, f32, "high"),
    "convolution 3x3, 32x56x56x64, bfloat16": _convolution(32, 56, 64),
    "convolution 3x3, 32x28x28x128, bfloat16": _convolution(32, 28, 128),
    "convolution 3x3, 32x28x28x128, float32 in parts": _convolution(32, 28, 128, f32, "high"),
    "attention 16x4096x128, bfloat16": _attention(16, 4096, 128),
    "gradients of attention 16x4096x128, bfloat16": _attention_gradients(16, 4096, 128),
    "softmax 65536x2048": _rows(lambda x: OPS.softmax(x), 65536, 2048),
    "layer norm 65536x2048": _rows(
        lambda x: OPS.standardize(x, axis=-1, epsilon=1e-5), 65536, 2048),
    "gelu 16384x4096": _rows(lambda x: OPS.gelu(x), 16384, 4096),
    "sum of columns 65536x2048": _rows(lambda x: OPS.sum(x, axis=0), 65536, 2048, 1.0),
    "sum of rows 65536x2048": _rows(lambda x: OPS.sum(x, axis=1), 65536, 2048, 1.0),
    "transpose 8192x8192": _rows(lambda x: OPS.transpose(x), 8192, 8192),
    "Adam, 16 million weights": _adam(1 << 24),
}
# Further sizes, rows x columns x k, of which there is no golden.
SIZES = {f"matrix product {m}x{n}x{k}, {d.long}": _product(m, n, k, d) for d, m, n, k in (
    *((bf16, n, n, n) for n in (512, 1024, 2048, 8192)), (f16, 1024, 1024, 1024),
    (f16, 8192, 8192, 8192), (bf16, 64, 4096, 4096), (bf16, 256, 8192, 4096),
    (bf16, 4096, 4096, 512))}
STEPS = (
    Step("digits_mlp", 32, "float32", "train"),
    Step("resnet18", 64, "float32", "train"),
    Step("resnet18", 64, "float32", "train", "high"),
    Step("resnet18", 64, "mixed_bfloat16", "train"),
    Step("bert_base", 32, "mixed_bfloat16", "train"),
)


def write(folder: Path, quick: bool = False) -> list[Path]:
    """Predicts all and writes the tables; the paths of the files. `quick`: leaves out large
    models."""
    kernels = Section("kernels", "Main kernels, predicted", "the column `bound`")
    steps = Section("steps", "Steps of models, predicted", "the column `bound`; the best possible "
                    "time is that of the kernels' FLOPs at the peak or of their bytes at the rate "
                    "of a copy. `as written`: that of the products and convolutions of the model, "
                    "of which Winograd's transforms compute a quarter")
    facts = {"date": datetime.date.today().isoformat(), "GPUs": ", ".join(GPUS),
             "kind": "predictions of the performance model; nothing was run"}
    for name, kernel in {**KERNELS, **SIZES}.items():
        for row in map(gpu, GPUS):
            kernel_line(kernels, name, kernel, row)
    for step in STEPS[:1] if quick else STEPS:
        step_lines(steps, step, [gpu(name) for name in GPUS])
    return report.write(folder, "predictions", facts, [kernels, steps], False,
                        "Predicted times of GPUs", METHOD)


def predict_kernel_row(kernel: MainKernel, row: Gpu) -> FunctionPrediction:
    """The kernels of an operation on a GPU, whose data are in memory."""
    made_for = targets.target(row.targets[0]).with_precision(kernel.precision)
    functions = {"op": kernel.make()}
    try:
        return predict_functions(functions, made_for, row, assemble=True, cached=False)["op"]
    except Unsupported:  # the assembler is not installed
        return predict_functions(functions, made_for, row, cached=False)["op"]


def predicted_seconds(functions: Mapping[str, Graph], d: ListedDevice,
                      precision: str = "float32") -> dict[str, float] | None:
    """Seconds of each function on a device of this machine; None: there are no figures for it."""
    row = gpu_of_device(d.name)
    if row is None:
        return None
    target = target_for(resolve(d.id)).with_precision(precision)
    predicted = predict_functions(functions, target, row)
    return {name: p.seconds for name, p in predicted.items()}


def beside(functions: Mapping[str, Graph], d: ListedDevice, function: str) -> str:
    """The predicted time of a function, beside the measured one; empty: not known."""
    predicted = predicted_seconds(functions, d)
    return "" if predicted is None else duration(predicted[function])


def kernel_line(section: Section, name: str, kernel: MainKernel, row: Gpu) -> None:
    """Adds a line: one operation on one GPU."""
    predicted = predict_kernel_row(kernel, row)
    seconds = predicted.seconds - row.step_us * 1e-6
    share = best_share(seconds, kernel.flops, kernel.nbytes, row, kernel.dtype)
    held = best_share(seconds, kernel.flops / row.held_share, kernel.nbytes, row, kernel.dtype)
    longest = max(predicted.kernels, key=lambda k: k.kernel.seconds).kernel
    rate = (f"{kernel.flops / seconds / 1e12:.0f} TFLOP/s" if kernel.flops else
            f"{kernel.nbytes / seconds / 1e9:.0f} GB/s")
    spilled = sum(k.kernel.spilled or 0 for k in predicted.kernels)
    section.line({
        "case": name, "GPU": row.name, "predicted": duration(seconds), "rate": rate,
        "of the best": f"{share:.0%}", "at the held clock": f"{held:.0%}",
        "goal": f"{kernel.goal:.0%}", "bound": longest.bound,
        "kernels": f"{predicted.launches}", "registers": f"{longest.registers}",
        "spilled": f"{spilled}", "lines/request": f"{longest.transactions:.1f}",
        "conflicts": f"{longest.conflicts:.2f}",
        "products/load": f"{longest.matrix_per_load:.1f}" if longest.matrix_per_load else "–",
    }, seconds=seconds, share=share, kernels=predicted.to_json()["kernels"])


def step_lines(section: Section, step: Step, rows: Sequence[Gpu]) -> None:
    """Adds a line for each GPU: one function of a model."""
    module = importlib.import_module(f"models.{step.model}")
    model = module.build()
    traced = model.trace(step.batch, optimizer="adam", loss=module.LOSS, dtype=step.dtype)
    functions = {step.function: traced.functions[step.function]}
    products = sum(flops(v) for v in functions[step.function].nodes()
                   if v.op.kind in ("contract", "convolution"))
    for row in rows:
        made_for = targets.target(row.targets[0]).with_precision(step.precision)
        predicted = predict_functions(functions, made_for, row)[step.function]
        shares: dict[str, float] = {"launches": predicted.gaps}
        for k in predicted.kernels:
            spent = k.launches * k.kernel.seconds
            shares[k.kernel.bound] = shares.get(k.kernel.bound, 0.0) + spent
        whole = sum(shares.values())
        section.line({
            "case": f"{step.model}, {step.function}, batch {step.batch}, {step.dtype}"
                    + " in parts" * (step.precision == "high"),
            "GPU": row.name, "predicted": duration(predicted.seconds),
            "launches": f"{predicted.launches}", "waves": f"{predicted.waves}",
            "GFLOP": f"{predicted.flops / 1e9:.3g}",
            "memory": f"{predicted.memory_bytes / 1e6:.3g} MB",
            "best possible": duration(predicted.floor),
            "as written": duration(max(products / step.product_rate(row),
                                       predicted.memory_bytes / row.copy_rate)),
            "bound": ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in sorted(
                shares.items(), key=lambda item: -item[1]) if seconds > 0.05 * whole),
        }, seconds=predicted.seconds, launch_count=predicted.launches)


def best_share(seconds: float, flops: float, nbytes: float, gpu: Gpu, dtype: str) -> float:
    """Which share of the best possible rate a time is: that of matrix instructions on a dtype (of
    threads for float32), or that of a copy, whichever takes longer.

    >>> from ztorch.machines.gpus import gpu
    >>> round(best_share(1e-3, 0.0, 2.16e9, gpu("H200"), "f32"), 3)
    0.5
    """
    rate = gpu.matrix_rate(dtype) or gpu.f32_rate
    return max(flops / rate, nbytes / gpu.copy_rate) / seconds
