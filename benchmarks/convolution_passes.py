"""Convolutions in training, each pass apart: the result, the gradient of the images and that of the
kernel, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import machine, peers
from benchmarks.programs import call, input_like
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch.graph.autodiff import gradients
from ztorch.graph.op import OPS
from ztorch.graph.value import Value

PASSES = ("forward", "images", "kernel")  # what a row computes: the result, or a gradient
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Shape:
    """A convolution with as much padding as keeps the side, or halves it at a stride of 2."""

    batch: int
    side: int
    channels: int
    filters: int
    window: int
    stride: int = 1

    @property
    def name(self) -> str:
        """Such as `3x3, 28x28x128 to 128`."""
        step = f" by {self.stride}" if self.stride > 1 else ""
        return (f"{self.window}x{self.window}{step}, {self.batch}x{self.side}x{self.side}"
                f"x{self.channels} to {self.filters}")


SHAPES = (
    Shape(8, 56, 64, 64, 3), Shape(8, 28, 128, 128, 3), Shape(8, 14, 256, 256, 3),
    Shape(8, 7, 512, 512, 3), Shape(8, 28, 128, 256, 3, 2), Shape(8, 56, 64, 256, 1),
    Shape(8, 28, 128, 512, 1), Shape(8, 14, 256, 1024, 1), Shape(8, 7, 512, 2048, 1),
    Shape(32, 56, 64, 64, 3), Shape(32, 14, 256, 256, 3), Shape(32, 14, 1024, 256, 1))


def run(threads: list[int], effort: Effort) -> Section:
    """Each pass of each convolution, on images as rows x columns x channels."""
    s = Section("conv passes", "Passes of convolutions, float32",
                "the FMA peak. `of peak` counts the operations of the sum as it is written; "
                "convolutions transformed by Winograd's algorithm do with a quarter of the "
                "multiplications, and may be above it.")
    quick = effort.least <= 3
    for n in threads:
        peers.set_threads(n)
        for shape in SHAPES[3:4] if quick else SHAPES:
            for what in PASSES:
                _case(s, shape, what, n, effort)
    return s


def _case(s: Section, shape: Shape, what: str, threads: int, effort: Effort) -> None:
    random = np.random.default_rng(2)
    x = random.standard_normal((shape.batch, shape.side, shape.side, shape.channels), np.float32)
    kernel = random.standard_normal((shape.window, shape.window, shape.channels, shape.filters),
                                    np.float32)
    after = (shape.side - 1) // shape.stride + 1
    slope = random.standard_normal((shape.batch, after, after, shape.filters), np.float32)
    arrays = {"forward": {"x": x, "kernel": kernel}, "images": {"kernel": kernel, "slope": slope},
              "kernel": {"x": x, "slope": slope}}[what]
    ours = call(_pass(shape, what, x, kernel, slope), arrays, threads)
    contestants, errors = [Contestant("ztorch", ours)], {"ztorch": 0.0}
    if torch := peers.module("torch"):
        true = _theirs(torch, shape, what, (x, kernel, slope), "contiguous_format", True)().numpy()
        errors["ztorch"] = peers.worst(ours.outputs["y"], true)
        for label, layout in {"PyTorch": "contiguous_format",
                              "channels last": "channels_last"}.items():
            theirs = _theirs(torch, shape, what, (x, kernel, slope), layout, False)
            errors[label] = peers.worst(theirs(), true)
            contestants.append(Contestant(label, theirs))
    name = f"{shape.name}, {what}"
    error = peers.checked(name, TOLERANCE, **errors)
    timings = compare([*contestants, machine.peak(threads)], threads == 1, effort)
    flops = 2.0 * slope.size * kernel[..., 0].size
    share = timings[-1].ratio * flops / machine.fma_call(threads)[1]
    s.compared(name, threads, timings[:-1], error, **{"of peak": f"{share:.0%}"})


def _pass(shape: Shape, what: str, x: np.ndarray, kernel: np.ndarray, slope: np.ndarray) -> Value:
    """The graph of one pass."""
    image, weights = input_like("x", x), input_like("kernel", kernel)
    y = OPS.conv(image, weights, shape.stride, ((shape.window // 2,) * 2,) * 2)
    if what == "forward":
        return y
    [slopes] = gradients(OPS.sum(y * input_like("slope", slope)),
                         [image if what == "images" else weights])
    return slopes


def _theirs(torch: Any, shape: Shape, what: str, arrays: tuple[np.ndarray, ...], layout: str,
            double: bool) -> Callable[[], Any]:
    """One pass as something to call. Its result has our order of axes, which costs PyTorch
    nothing."""
    x, kernel, slope = (torch.from_numpy(a).double() if double else torch.from_numpy(a)
                        for a in arrays)
    form = {"memory_format": getattr(torch, layout)}
    x, slope = (t.permute(0, 3, 1, 2).clone(**form) for t in (x, slope))
    kernel = kernel.permute(3, 2, 0, 1).clone(**form)
    edge, step = [shape.window // 2] * 2, [shape.stride] * 2
    if what == "forward":
        order = 0, 2, 3, 1

        def compute() -> Any:
            return torch.nn.functional.conv2d(x, kernel, None, step, edge)
    else:
        order = (0, 2, 3, 1) if what == "images" else (2, 3, 1, 0)
        wanted = [what == "images", what == "kernel", False]

        def compute() -> Any:
            slopes = torch.ops.aten.convolution_backward(
                slope, x, kernel, None, step, edge, [1, 1], False, [0, 0], 1, wanted)
            return slopes[wanted.index(True)]

    def once() -> Any:
        with torch.inference_mode():
            return compute().permute(order)

    return once
