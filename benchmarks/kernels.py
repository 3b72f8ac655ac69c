"""The kernels of models/kernels/ beside PyTorch and, where it is installed, numba."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import ztorch as zt
from benchmarks import kernel_peers, limits, machine, numba_twins, peers, report
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch.arrays import programs
from ztorch.host import settings

Arrays = list[np.ndarray]
GALLERY = Effort(block=2.5e-3, least=11, most=41, seconds=1.0)
TOLERANCE = 2e-4  # of float32, as a share of the largest number
DIFFERENT = 0.01  # share of whole numbers that may differ, where roundings decide


@dataclass(frozen=True)
class Case:
    """A kernel, what it is called with, and PyTorch's words for it."""

    path: str  # file and name
    inputs: Callable[[np.random.Generator], list[np.ndarray]]
    torch: Callable[..., Any]  # (torch, *tensors) -> results
    options: dict[str, Any] = field(default_factory=dict)
    flops: float = 0  # of its products
    summed: tuple[str, ...] = ()  # arrays that several turns add to
    compiles: bool = True  # False: torch.compile would write out a long loop, for minutes
    note: str = ""  # of several cases of a kernel
    is_loop: bool = False  # a loop that frameworks have an op for: numba is the peer

    @property
    def kind(self) -> str:
        """The kind of kernel, which decides what it is held to."""
        return "plain loop" if self.is_loop else "product" if self.flops else "fused"

    @property
    def name(self) -> str:
        return f"{self.path.partition('.')[2]} {self.note}".rstrip()

    @property
    def kernel(self) -> Any:
        file, name = self.path.split(".")
        return getattr(importlib.import_module(f"models.kernels.{file}"), name)


def _normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Arrays]:
    return lambda r: [r.normal(size=s).astype(np.float32) / math.sqrt(s[0] if len(s) == 2 else 1)
                      for s in shapes]


def _positive(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], Arrays]:
    return lambda r: [r.uniform(0.5, 1.5, s).astype(np.float32) for s in shapes]


def _masked(r: np.random.Generator) -> Arrays:
    n = 512
    return [*_normal(*[(1, 4, n, 64)] * 3)(r), np.tril(np.ones((n, n), bool))]


def _plane(r: np.random.Generator) -> Arrays:
    re, im = np.meshgrid(np.linspace(-2, 0.5, 256), np.linspace(-1.2, 1.2, 256))
    return [re.astype(np.float32), im.astype(np.float32)]


def _block(r: np.random.Generator) -> Arrays:
    width, hidden = 256, 688
    return _normal((256, width), (width,), *[(width, width)] * 4, (width,), (width, hidden),
                   (width, hidden), (hidden, width))(r)


def _ragged(r: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Where 20,000 rows of about 10 elements start, and the column of each element."""
    starts = np.concatenate([[0], r.binomial(20_000, 5e-4, 20_000).cumsum()]).astype(np.int32)
    return starts, r.integers(0, 20_000, starts[-1]).astype(np.int32)


def _sparse(r: np.random.Generator) -> Arrays:
    starts, columns = _ragged(r)
    return [starts, columns, *(r.normal(size=n).astype(np.float32) for n in (len(columns), 20_000))]


def _rows(r: np.random.Generator) -> Arrays:
    starts, columns = _ragged(r)
    return [r.normal(size=len(columns)).astype(np.float32), starts]


HEADS = (1, 4, 512, 64)
CASES = [
    Case("elementwise.scale_shift", _normal((1024, 1024), (1024,), (1024,)),
         lambda torch, x, a, b: x * a + b),
    Case("elementwise.scale_shift", _normal((512, 256), (256,), (256,)),
         lambda torch, x, a, b: x * a + b, note="in the cache"),
    Case("elementwise.call_price", _positive(*[(1_000_000,)] * 3), kernel_peers.call_price),
    Case("gelu.bias_gelu", _normal((512, 3072), (3072,)),
         lambda torch, x, b: torch.nn.functional.gelu(x + b, approximate="tanh")),
    Case("reductions.row_max", _normal((1024, 1024)), lambda torch, x: tuple(x.max(1)),
         is_loop=True),
    Case("softmax.softmax", _normal((512, 1024)), lambda torch, x: torch.softmax(x, -1)),
    Case("layer_norm.add_layer_norm", _normal((512, 768), (512, 768), (768,), (768,)),
         kernel_peers.layer_norm),
    Case("rotary.rotary_halves", _normal((1, 8, 512, 64)), kernel_peers.rotary),
    Case("rotary.rotary_interleaved", _normal((1, 8, 512, 64)), kernel_peers.rotary_interleaved),
    Case("scans.running_sum", _normal((1024, 256)), lambda torch, x: x.cumsum(1),
         is_loop=True),
    Case("scans.leaky_sum", _positive((1024, 100), (1024, 100)), kernel_peers.leaky_sum,
         is_loop=True),
    Case("sorting.sort_rows", _normal((256, 32)), lambda torch, x: x.sort(1).values,
         is_loop=True),
    Case("histogram.weighted_histogram", lambda r: [
        r.integers(0, 64, 100_000).astype(np.int32), r.normal(size=100_000).astype(np.float32)],
        lambda torch, x, w: torch.bincount(x, w, 64).to(w.dtype), {"bins": 64},
        summed=("sums",), is_loop=True),
    Case("ragged.sparse_product", _sparse, kernel_peers.sparse_product, is_loop=True),
    Case("ragged.ragged_softmax", _rows, kernel_peers.ragged_softmax),
    Case("mandelbrot.mandelbrot", _plane, kernel_peers.mandelbrot, compiles=False,
         is_loop=True),
    Case("k_means.k_means_step", _normal((20_000, 8), (16, 8)), kernel_peers.k_means,
         flops=20_000 * 16 * 8 * 3, summed=("sums", "members"), is_loop=True),
    Case("matmul.linear_relu", _normal((512, 512), (512, 512), (512,)),
         lambda torch, x, w, b: torch.relu(torch.addmm(b, x, w)), flops=2 * 512 ** 3),
    Case("convolution.conv2d", _normal((1, 56, 56, 32), (3, 3, 32, 32)), kernel_peers.conv2d,
         {"padding": 1}, flops=2 * 56 * 56 * 9 * 32 * 32),
    Case("convolution.depthwise_conv2d", _normal((1, 56, 56, 64), (3, 3, 64)),
         kernel_peers.depthwise, {"padding": 1}, flops=2 * 56 * 56 * 9 * 64),
    Case("swiglu.swiglu", _normal((128, 512), (512, 1376), (512, 1376), (1376, 512)),
         kernel_peers.swiglu, flops=6 * 128 * 512 * 1376),
    Case("attention.attention", _masked, kernel_peers.attention, flops=4 * 4 * 512 * 512 * 64),
    Case("flash_attention.flash_attention", _normal(*[HEADS] * 3), kernel_peers.attention,
         flops=4 * 4 * 512 * 512 * 64),
    Case("transformer_block.transformer_block", _block, kernel_peers.transformer_block,
         {"heads": 4, "block": 64},
         flops=256 * (8 * 256 ** 2 + 6 * 256 * 688 + 4 * 256 * 256)),
]


def run(threads: list[int], effort: Effort, names: Sequence[str] = ()) -> Section:
    """Each kernel as its users call it, on tensors; with `names` only these."""
    s = Section("kernels", "Kernels: the gallery, float32",
                "what it would be for the same computation written as a layer: kernels become "
                "graphs of the same ops. Some 2 µs of each call are Python's. Shares are of what a "
                "copy of as many bytes as it reads and writes reaches, and of multiply-adds in "
                "registers; convolutions of 3 x 3 do fewer than are counted. The limits also "
                "say how many times as long torch.compile takes as that copy and these "
                "multiply-adds: no program that does as many can be faster by more. Fused kernels "
                "are held to twice torch.compile, loops to numba, products to the multiply-adds, "
                "near which no program can be twice another. Triton is no "
                "peer: its packages compile for GPUs alone.")
    for n in threads:
        peers.set_threads(n)
        with settings.using(threads=n):
            programs.forget()
            for case in CASES:
                if names and case.name not in names:
                    continue
                try:
                    _case(s, case, n, effort)
                except zt.errors.ZtorchError as error:
                    s.failed(case.path, error, threads=str(n))
    programs.forget()
    return s


def _case(s: Section, case: Case, threads: int, effort: Effort) -> None:
    arrays = case.inputs(np.random.default_rng(0))
    kernel, tensors = case.kernel, [zt.tensor(a) for a in arrays]
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    true = np.asarray(_first(kernel(*wide, **case.options)))

    def ours() -> None:
        result = kernel(*tensors, **case.options)
        for y in result if isinstance(result, tuple) else (result,):
            y.realize()

    contestants = [Contestant("ztorch", ours)]
    errors = {"ztorch": _error(_first(kernel(*tensors, **case.options)).numpy(), true)}
    torch = peers.module("torch")
    if torch:
        theirs = [torch.from_numpy(a) for a in arrays]
        eager = _inferring(torch, lambda *xs: case.torch(torch, *xs), theirs)
        contestants.append(Contestant("PyTorch eager", eager))
        errors["PyTorch"] = _error(_first(eager()), true)
        fast = case.compiles and peers.compiled(lambda *xs: case.torch(torch, *xs))
        if fast:
            fused = _inferring(torch, fast, theirs)
            contestants.append(Contestant("torch.compile", fused))
            errors["torch.compile"] = _error(_first(fused()), true)
    jitted = numba_twins.twin(kernel, arrays, case.options, threads, case.summed)
    if jitted:
        contestants.append(Contestant("numba", lambda: jitted(*arrays, **case.options)))
        errors["numba"] = _error(_first(jitted(*arrays, **case.options)), true)
    tolerance = TOLERANCE if true.dtype.kind == "f" else DIFFERENT
    error = peers.checked(case.path, tolerance, **errors)
    timings = compare(contestants, threads == 1, effort)
    whole = kernel(*arrays, **case.options)
    results = [np.asarray(y) for y in (whole if isinstance(whole, tuple) else (whole,))]
    shares = limits.shares(arrays, results, case.flops, timings[0].seconds, threads)
    compiled = [t.seconds for t in timings if t.name == "torch.compile"]
    most = limits.fewest_seconds(arrays, results, case.flops, threads)
    s.compared(case.name, threads, timings, error, kind=case.kind, **shares, **{
        "torch.compile beside the limits": f"x{compiled[0] / most:.2f}" if compiled else "–"})


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result


def _error(got: Any, true: np.ndarray) -> float:
    """The largest error; of whole numbers the share that differs."""
    if true.dtype.kind == "f":
        return peers.worst(got, true)
    return float((np.asarray(got) != true).mean())


def _inferring(torch: Any, function: Callable[..., Any], inputs: list[Any]) -> Callable[[], Any]:
    def call() -> Any:
        with torch.inference_mode():
            return function(*inputs)

    return call


def main(names: Sequence[str]) -> None:
    """Measures kernels, and writes them beside those of earlier runs on this machine.

    Args:
        names: Cases, such as `scale_shift`; none means all.
    """
    cases = [case.name for case in CASES]
    if wrong := [name for name in names if name not in cases]:
        sys.exit(f"{wrong[0]!r} is no case; they are: {', '.join(cases)}")
    stem, folder = f"kernels-{machine.slug()}", Path(__file__).parent / "results"
    facts = machine.describe()
    section = run([1, 2], GALLERY, names)
    known_sections = report.sections(folder / f"{stem}.json")
    before = known_sections.pop(section.key, None)
    order = {case.name: k for k, case in enumerate(CASES)}
    for key in ("lines", "results"):
        new = getattr(section, key)
        known = {(r["case"], str(r["threads"])) for r in new}
        old = getattr(before, key) if before else []
        kept = [r for r in old if (r["case"], str(r["threads"])) not in known]
        setattr(section, key, sorted((*kept, *new), key=lambda r: (
            str(r["threads"]), order.get(r["case"], len(order)))))
    print(*report.write(folder, stem, facts, [*known_sections.values(), section], False))


if __name__ == "__main__":
    # Threads of one contestant that spin while they wait would keep the next from its cores.
    os.environ.update(OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT="0", KMP_BLOCKTIME="0")
    main(sys.argv[1:])
