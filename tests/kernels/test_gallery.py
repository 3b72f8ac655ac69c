"""The kernels of models/kernels/: the same results as plain Python on every machine, and gradients."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.kernels.flash_attention import attention, flash_attention
from tests.cases.available import COMPUTING, PLAYED, device
from tests.cases.covering import share
from tests.cases.device_programs import all_agree
from tests.cases.gallery import EVERY, THREADED, KernelCase, leaves_of
from tests.cases.grouping import together
from tests.cases.interpreted_machines import INTERPRETED
from tests.parity import HERE, C, Job, Module, agree, interpreted
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.compile.pipeline import compile_functions
from ztorch.dtypes import f32
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.value import Graph
from ztorch.kernels import KernelFunction

FOLDER = Path(__file__).parents[2] / "models" / "kernels"
# Whose results are integers and bools alone, and loops over threads.
NO_GRADIENT = {"edit_distance.edit_distance", "reductions.row_truths", "reductions.row_argmin", "mandelbrot.mandelbrot",
               "histogram.histogram", *(f"threads.{name}" for name in THREADED)}


def test_every_kernel_of_the_gallery_is_tried() -> None:
    tried = {case.path for case in EVERY}
    for path in FOLDER.glob("*.py"):
        text = path.read_text()
        if "@zt.kernel" in text:
            module = __import__(f"models.kernels.{path.stem}", fromlist=["_"])
            own = {f"{path.stem}.{n}" for n, k in vars(module).items()
                   if isinstance(k, KernelFunction) and k.__module__ == module.__name__}
            assert own - tried <= {"transformer_block.split_heads"}


@together()
@pytest.mark.parametrize("case", EVERY, ids=str)
def test_the_graph_matches_plain_python(case: KernelCase) -> None:
    """In its own dtypes, and in float64 to the last digits."""
    for floats, tolerance in ((np.float32, 2e-5), (np.float64, 1e-12)):
        arrays = case.arrays(floats)
        leaves = leaves_of(arrays)
        got = evaluate(case.traced(leaves), dict(zip(leaves, arrays, strict=True)))
        for a, b in zip(got, case.plain(arrays), strict=True):
            assert a.shape == np.shape(b)
            if isinstance(b, (np.ndarray, np.generic)):
                assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@together()
@pytest.mark.parametrize("case", EVERY, ids=str)
def test_gradient_is_the_finite_difference_of_plain_python(case: KernelCase) -> None:
    """In a direction of chance for each input: an element that is wrong shows in it."""
    job = case.gradient_job()
    assert (job is None) == (case.path in NO_GRADIENT)
    if job is None:
        return
    arrays = case.arrays(np.float64)
    floats = [k for k, a in enumerate(arrays) if a.dtype.kind == "f"]
    random = np.random.default_rng(3)

    def total(k: int, moved: np.ndarray) -> float:
        results = case.plain([*arrays[:k], moved, *arrays[k + 1:]])
        return float(sum((np.asarray(y) ** 2).sum() for y in results
                         if np.asarray(y).dtype.kind == "f"))

    for k, gradient in zip(floats, job.oracle(), strict=True):
        way = random.normal(size=arrays[k].shape)
        ends = [total(k, arrays[k] + h * way) for h in (1e-6, -1e-6)]
        want = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose((gradient * way).sum(), want, rtol=2e-6, atol=1e-6)


def test_what_pytorch_has_too() -> None:
    torch = pytest.importorskip("torch")
    f = torch.nn.functional
    twins: dict[str, Any] = {
        "matmul.matmul": torch.matmul, "matmul.batched_matmul": torch.bmm,
        "matmul.tiled_matmul": torch.matmul,
        "matmul.linear_relu": lambda x, w, b: f.relu(f.linear(x, w.T, b)),
        "softmax.softmax": lambda x: f.softmax(x, -1), "gelu.gelu_each": f.gelu,
        "gelu.bias_gelu": lambda x, b: f.gelu(x + b, approximate="tanh"),
        "layer_norm.add_layer_norm": lambda x, r, g, b: (x + r, f.layer_norm(x + r, x.shape[1:], g, b)),
        "layer_norm.rms_norm": lambda x, g: f.rms_norm(x, x.shape[1:], g, 1e-6),
        "convolution.conv2d": lambda x, w: f.conv2d(
            x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), stride=2, padding=1).permute(0, 2, 3, 1),
        "convolution.depthwise_conv2d": lambda x, w: f.conv2d(
            x.permute(0, 3, 1, 2), w.permute(2, 0, 1)[:, None], padding=1,
            groups=2).permute(0, 2, 3, 1),
        "attention.attention": lambda q, k, v, mask: torch.nan_to_num(
            f.scaled_dot_product_attention(q, k, v, mask)),
        "flash_attention.flash_attention": f.scaled_dot_product_attention,
        "flash_attention.flash_attention causal": lambda q, k, v: f.scaled_dot_product_attention(
            q, k, v, is_causal=True),
        "swiglu.swiglu": lambda x, g, u, d: (f.silu(x @ g) * (x @ u)) @ d,
        "sorting.sort_rows": lambda x: x.sort(1).values, "scans.running_sum": lambda x: x.cumsum(1),
        "scans.running_max": lambda x: x.cummax(1).values, "reductions.norm": torch.linalg.norm,
        "reductions.row_max": lambda x: tuple(x.max(1)),
        "fourier.fourier": lambda re, im: tuple(torch.view_as_real(torch.fft.fft(torch.complex(re, im))).unbind(-1)),
    }
    cases = {str(case): case for case in EVERY}
    for name, twin in twins.items():
        arrays = cases[name].arrays(np.float64)
        want = twin(*map(torch.from_numpy, arrays))
        for got, y in zip(cases[name].job().oracle(), want if isinstance(want, tuple) else (want,),
                          strict=True):
            np.testing.assert_allclose(got, y.numpy(), rtol=1e-10, atol=1e-12, err_msg=name)


# -- on every machine --------------------------------------------------------------------------------


@functools.cache
def jobs() -> list[Job]:
    """Values and gradients in float32."""
    some = [job for case in EVERY for job in (case.job(f32), case.gradient_job(f32))]
    return [job for job in some if job is not None]


MACHINES = [*INTERPRETED, *HERE, *C, *COMPUTING]


def part_of(machine: str) -> list[Job]:
    """A machine's share: this CPU's best level and rare devices run all, the others divide all."""
    if machine == HERE[-1] or machine in set(COMPUTING) - {*PLAYED}:
        return jobs()
    return share(jobs(), MACHINES.index(machine), len(MACHINES))


@pytest.mark.parametrize("machine", [
    pytest.param(m, marks=() if m == HERE[-1] else pytest.mark.slow) for m in MACHINES])
def test_every_machine(machine: str) -> None:
    if machine in COMPUTING:
        device(machine)
        all_agree(machine, part_of(machine))
    elif machine in INTERPRETED:
        for job in part_of(machine):
            agree(job, interpreted(job, INTERPRETED[machine], workers=2), terms=20)
    else:
        module = Module(part_of(machine), machine)
        for k, job in enumerate(part_of(machine)):
            agree(job, module.run(k), terms=20)


# -- memory ------------------------------------------------------------------------------------------


def arena(function: Any, positions: int, slopes: bool = False, **options: Any) -> int:
    """Bytes that flash attention, or its gradient, needs beside its inputs and outputs."""
    leaves = leaves_of([np.empty((1, 2, positions, 16), np.float32)] * 3)
    y = function(*leaves, **options)
    graph = Graph({"y": y})
    if slopes:
        graph = Graph({f"g{k}": g for k, g in enumerate(gradients(ops.sum(y * y), leaves))})
    return compile_functions({"f": graph}, TARGETS[HERE[-1]], "memory").spec.arena_bytes


def test_memory_of_flash_attention_grows_with_the_positions() -> None:
    for causal in (False, True):
        small, large = (arena(flash_attention, n, block=64, causal=causal) for n in (512, 2048))
        assert large <= 4.2 * small
        assert large < 2048 * 2048 * 4  # the scores of one head alone
    assert arena(flash_attention, 1024, slopes=True, block=64) < 2 * 1024 * 1024 * 4  # of both heads


def test_memory_of_its_gradients_grows_with_the_positions() -> None:
    """That of the compiler needs less than that by hand, which keeps the result."""
    for function in (attention, flash_attention):
        small, large = (arena(function, n, slopes=True, block=64, causal=True) for n in (8192, 16384))
        assert large <= 2.1 * small
        assert large < 48 << 20  # eight times the inputs
    assert arena(flash_attention, 1024, slopes=True, block=64) < 8 << 20  # at once


@pytest.mark.parametrize("causal", [False, True])
def test_the_gradient_of_attention_by_hand_is_that_of_pytorch(causal: bool) -> None:
    torch = pytest.importorskip("torch")
    arrays = list(np.random.default_rng(5).normal(size=(4, 1, 2, 12, 4)))
    leaves = leaves_of(arrays)
    y = ops.sum(attention(*leaves[:3], block=4, causal=causal) * leaves[3])
    slopes = evaluate(gradients(y, leaves[:3]), dict(zip(leaves, arrays, strict=True)))
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays[:3]]
    torch.nn.functional.scaled_dot_product_attention(*theirs, is_causal=causal).backward(
        torch.tensor(arrays[3]))
    for slope, t in zip(slopes, theirs, strict=True):
        np.testing.assert_allclose(slope, t.grad.numpy(), rtol=1e-10, atol=1e-12)
