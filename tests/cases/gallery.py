"""The kernels of models/kernels/, and those of ops, with small inputs: each computed by plain Python, and
as graphs of its results and of its gradient."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.parity import Job
from ztorch import ops
from ztorch.dtypes import DType, dtype, f64
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph, Value


@dataclass(frozen=True)
class KernelCase:
    """A kernel of the gallery and how it is called."""

    path: str  # file and name
    inputs: Callable[[np.random.Generator], tuple[np.ndarray, ...]]  # in float64, integers, bools
    options: tuple[tuple[str, Any], ...] = ()  # numbers that are compiled in
    note: str = ""  # of several cases of one kernel
    differentiable: bool = True  # loops over threads are not
    room: str = "models.kernels"

    def __str__(self) -> str:
        return f"{self.path} {self.note}".rstrip()

    @property
    def kernel(self) -> Any:
        file, name = self.path.split(".")
        return getattr(importlib.import_module(f"{self.room}.{file}"), name)

    def arrays(self, floats: Any = np.float32) -> list[np.ndarray]:
        drawn = self.inputs(np.random.default_rng(len(self.path)))
        return [a.astype(floats) if a.dtype.kind == "f" else a for a in drawn]

    def plain(self, arrays: list[np.ndarray]) -> list[Any]:
        """The function's result as plain Python."""
        with np.errstate(invalid="ignore"):
            result = self.kernel.debug(*arrays, **dict(self.options))
        return list(result) if isinstance(result, tuple) else [result]

    def traced(self, leaves: list[Value]) -> list[Value]:
        result = self.kernel(*leaves, **dict(self.options))
        return list(result) if isinstance(result, tuple) else [result]

    def job(self, floats: DType = f64) -> Job:
        """The results."""
        arrays = self.arrays(floats.numpy)
        leaves = leaves_of(arrays)
        return Job(Graph({f"y{k}": y for k, y in enumerate(self.traced(leaves))}),
                   dict(zip(leaves, arrays, strict=True)), str(self))

    def gradient_job(self, floats: DType = f64) -> Job | None:
        """The gradient of the sum of squares of all results in floats; None if there are none."""
        if not self.differentiable:
            return None
        arrays = self.arrays(floats.numpy)
        leaves = leaves_of(arrays)
        results = [y for y in self.traced(leaves) if y.dtype.is_float]
        wrt = [v for v in leaves if v.dtype.is_float]
        if not results or not wrt:
            return None
        total = functools.reduce(lambda a, b: a + b, [ops.sum(y * y) for y in results])
        return Job(Graph({f"d{k}": g for k, g in enumerate(gradients(total, wrt))}),
                   dict(zip(leaves, arrays, strict=True)), f"{self} gradient")


def leaves_of(arrays: list[np.ndarray]) -> list[Value]:
    return [leaf("input", f"x{k}", a.shape, dtype(a.dtype)) for k, a in enumerate(arrays)]


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[np.ndarray, ...]]:
    return lambda r: tuple(r.normal(size=shape) for shape in shapes)


def positive(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[np.ndarray, ...]]:
    return lambda r: tuple(r.uniform(0.5, 1.5, size=shape) for shape in shapes)


STARTS = np.array([0, 3, 3, 8, 9], np.int32)  # of rows, one of them empty
HEADS = ((2, 2, 6, 4),) * 3


def _masked(r: np.random.Generator) -> tuple[np.ndarray, ...]:
    mask = np.tril(np.ones((6, 6), bool))
    mask[2] = False  # a query that sees nobody
    return (*normal(*HEADS)(r), mask)


def _block(r: np.random.Generator) -> tuple[np.ndarray, ...]:
    square = ((4, 4),) * 4
    return normal((6, 4), (4,), *square, (4,), (4, 6), (4, 6), (6, 4))(r)


THREADED: dict[str, Callable[[np.random.Generator], tuple[np.ndarray, ...]]] = {
    "block_histogram": lambda r: (r.integers(0, 64, 150).astype(np.int32),),
    "block_sums": normal((150,)), "row_norms": normal((3, 70)), "extent": normal((100,)),
    "label_products": lambda r: (r.integers(0, 4, 70).astype(np.int32), r.uniform(0.8, 1.2, 70))}
EVERY = [
    KernelCase("elementwise.scale_shift", normal((3, 4), (4,), (4,))),
    KernelCase("elementwise.smooth_step", lambda r: (
        r.normal(size=(2, 3, 4)), r.uniform(-2, -1, (3, 1)), r.uniform(1, 2, 4))),
    KernelCase("elementwise.call_price", positive((5,), (5,), (5,))),
    KernelCase("reductions.norm", normal((3, 5))),
    KernelCase("reductions.row_statistics", normal((3, 5))),
    KernelCase("reductions.row_truths", normal((5, 2))),
    KernelCase("reductions.row_argmin", normal((4, 5))),
    KernelCase("reductions.row_max", normal((4, 5))),
    KernelCase("scans.running_sum", normal((3, 5))),
    KernelCase("scans.running_max", normal((3, 5))),
    KernelCase("scans.leaky_sum", normal((3, 5), (3, 5))),
    KernelCase("sorting.sort_rows", normal((3, 7))),
    KernelCase("matmul.matmul", normal((3, 4), (4, 5))),
    KernelCase("matmul.batched_matmul", normal((2, 3, 4), (2, 4, 5))),
    KernelCase("matmul.linear_relu", normal((3, 4), (4, 5), (5,))),
    KernelCase("matmul.tiled_matmul", normal((4, 6), (6, 2)), (("tile", 2),)),
    KernelCase("convolution.conv2d", normal((2, 5, 6, 2), (3, 3, 2, 3)),
               (("stride", 2), ("padding", 1))),
    KernelCase("convolution.depthwise_conv2d", normal((2, 4, 5, 2), (3, 3, 2)), (("padding", 1),)),
    KernelCase("attention.attention", _masked),
    KernelCase("flash_attention.flash_attention", normal(*HEADS), (("block", 3),)),
    KernelCase("flash_attention.flash_attention", normal(*HEADS), (("block", 2), ("causal", True)),
               "causal"),
    KernelCase("flash_attention.attention_and_sums", normal(*HEADS), (("block", 3), ("causal", True))),
    KernelCase("flash_attention.attention_gradient", normal(*HEADS, HEADS[0], HEADS[0][:3], HEADS[0]),
               (("block", 3), ("causal", False))),
    KernelCase("softmax.softmax", normal((3, 7))),
    KernelCase("layer_norm.add_layer_norm", normal((3, 7), (3, 7), (7,), (7,))),
    KernelCase("layer_norm.rms_norm", normal((3, 7), (7,))),
    KernelCase("gelu.gelu_each", normal((3, 2, 4))),
    KernelCase("gelu.bias_gelu", normal((2, 3, 7), (7,))),
    KernelCase("rotary.rotary_interleaved", normal((2, 1, 3, 4))),
    KernelCase("rotary.rotary_halves", normal((2, 1, 3, 4))),
    KernelCase("swiglu.swiglu", normal((3, 4), (4, 6), (4, 6), (6, 4))),
    KernelCase("transformer_block.transformer_block", _block, (("block", 3),)),
    KernelCase("mandelbrot.mandelbrot", normal((4, 5), (4, 5))),
    KernelCase("histogram.histogram", positive((20,)), (("high", 2.0), ("bins", 5))),
    KernelCase("histogram.weighted_histogram", lambda r: (
        r.integers(0, 5, 20).astype(np.int32), r.normal(size=20)), (("bins", 5),)),
    KernelCase("k_means.k_means_step", normal((12, 3), (4, 3))),
    KernelCase("edit_distance.edit_distance", lambda r: (r.integers(0, 3, 6), r.integers(0, 3, 5))),
    KernelCase("ragged.sparse_product", lambda r: (
        STARTS, r.integers(0, 4, 9).astype(np.int32), *normal((9,), (4,))(r))),
    KernelCase("ragged.ragged_softmax", lambda r: (r.normal(size=9), STARTS)),
    KernelCase("kernel_ctc.unlikelihood", lambda r: (
        np.array([[1, 2], [2, 2], [1, 0]], np.int32), *normal((3, 5, 3))(r),
        np.array([2, 2, 0], np.int32), np.array([4, 5, 3], np.int32)), (("blank", 0),),
        room="ztorch.ops"),
    KernelCase("fourier.fourier", normal((2, 8), (2, 8))),
    KernelCase("bilinear.warp", normal((4, 5), (4, 5, 2))),
    *(KernelCase(f"threads.{name}", draw, differentiable=False) for name, draw in THREADED.items()),
    KernelCase("threads.running_median", lambda r: (r.normal(size=70),)),
    KernelCase("n_body.forces", lambda r: (r.normal(size=(5, 3)), r.uniform(0.5, 1.5, 5))),
]
