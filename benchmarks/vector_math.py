"""Functions of single numbers and of rows, on 128 x 1024."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.programs import call, input_like, weight
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch.graph.op import OPS
from ztorch.graph.value import Value

ROWS, COLUMNS = 128, 1024
_erf = np.vectorize(math.erf)


@dataclass(frozen=True)
class Function:
    """One function in our words, in PyTorch's, and as it ought to be."""

    name: str
    ours: Callable[[Value], Value]
    torch: Callable[[Any, Any], Callable[[], Any]]  # (torch, x) to something to call
    plain: Callable[[Any, Any], Any]  # (torch, x) to y, for torch.compile
    true: Callable[[np.ndarray], np.ndarray]


def _out(name: str) -> Callable[[Any, Any], Callable[[], Any]]:
    def prepare(torch: Any, x: Any) -> Callable[[], Any]:
        function, y = getattr(torch, name), torch.empty_like(x)
        return lambda: function(x, out=y)

    return prepare


def _functional(name: str, *more: Any) -> Callable[[Any, Any], Callable[[], Any]]:
    def prepare(torch: Any, x: Any) -> Callable[[], Any]:
        function = getattr(torch.nn.functional, name)
        return lambda: function(x, *more)

    return prepare


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def _our_norm(x: Value) -> Value:
    gamma = weight("gamma", np.ones(COLUMNS, np.float32))
    beta = weight("beta", np.zeros(COLUMNS, np.float32))
    return OPS.standardize(x, axis=-1, epsilon=1e-5) * gamma + beta


def _torch_norm(torch: Any, x: Any) -> Callable[[], Any]:
    gamma, beta = torch.ones(COLUMNS), torch.zeros(COLUMNS)
    return lambda: torch.nn.functional.layer_norm(x, (COLUMNS,), gamma, beta, 1e-5)


FUNCTIONS = (
    Function("exp", OPS.exp, _out("exp"), lambda t, x: t.exp(x), np.exp),
    Function("tanh", OPS.tanh, _out("tanh"), lambda t, x: t.tanh(x), np.tanh),
    Function("gelu (erf)", OPS.gelu, _functional("gelu"),
             lambda t, x: t.nn.functional.gelu(x),
             lambda x: x * 0.5 * (1 + _erf(x / math.sqrt(2)))),
    Function("softmax", OPS.softmax, _functional("softmax", -1),
             lambda t, x: t.softmax(x, -1), _softmax),
    Function("layer norm", _our_norm, _torch_norm,
             lambda t, x: t.nn.functional.layer_norm(x, (COLUMNS,), t.ones(COLUMNS),
                                                     t.zeros(COLUMNS), 1e-5), _norm),
)


def run(threads: list[int], effort: Effort) -> Section:
    """Each function alone, its data in L2."""
    s = Section("vector", f"Vector math, {ROWS} x {COLUMNS} float32",
                "the arithmetic of the polynomials, and the divide of tanh and gelu; 512 KB in "
                "and 512 KB out are next, at the bandwidth of L2. Inside a model these run in "
                "the epilogue of a product, where that traffic does not exist. PyTorch writes to "
                "`out=` where its public function takes one.")
    x = np.random.default_rng(4).standard_normal((ROWS, COLUMNS), dtype=np.float32) * 2
    for n in threads:
        peers.set_threads(n)
        for function in FUNCTIONS:
            _case(s, function, x, n, effort)
    return s


def _case(s: Section, f: Function, x: np.ndarray, threads: int, effort: Effort) -> None:
    ours = call(f.ours(input_like("x", x)), {"x": x}, threads)
    true = f.true(x.astype(np.float64))
    errors = {"ztorch": peers.worst(ours.outputs["y"], true)}
    contestants = [Contestant("ztorch", ours)]
    torch = peers.module("torch")
    if torch:
        with torch.inference_mode():
            tx = torch.from_numpy(x)
            eager = f.torch(torch, tx)
            contestants.append(Contestant("PyTorch eager", eager))
            errors["PyTorch"] = peers.worst(eager(), true)
            fast = peers.compiled(lambda v: f.plain(torch, v))
            if fast:
                contestants.append(Contestant("torch.compile", lambda: fast(tx)))
                errors["torch.compile"] = peers.worst(fast(tx), true)
            error = peers.checked(f.name, 1e-4, **errors)
            timings = compare(contestants, threads == 1, effort)
    else:
        error = peers.checked(f.name, 1e-4, **errors)
        timings = compare(contestants, threads == 1, effort)
    t = timings[0].seconds
    s.compared(f.name, threads, timings, error,
               **{"ns a number": f"{t / x.size * 1e9:.3f}", "traffic":
                  f"{2 * x.nbytes / t / 1e9:.1f} GB/s"})
