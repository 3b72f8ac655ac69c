"""Tensors beside NumPy, PyTorch, JAX and numexpr: single ops, chains, reductions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import ztorch as zt
from benchmarks import peers
from benchmarks.limits import copying, shares
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, Timing, compare
from ztorch.arrays import programs
from ztorch.host import settings

TITLE = "Tensors: the same Python code by each library"
SMALL, LARGE = (10, 100, 1_000), (10_000, 100_000, 1_000_000)  # elements


class Library(NamedTuple):
    """The functions that a computation is written in."""

    exp: Callable[[Any], Any]
    log: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    erf: Callable[[Any], Any]
    where: Callable[[Any, Any, Any], Any]
    maximum: Callable[[Any, Any], Any]
    one_hot: Callable[[Any, int], Any]
    concat: Callable[[list[Any]], Any]
    stack: Callable[[list[Any]], Any]
    sort: Callable[[Any], Any]
    argsort: Callable[[Any], Any]


def chain(_: Library, x: Any, ops: int = 10) -> Any:
    for _turn in range(ops // 2):
        x = x * 0.9 + 0.1
    return x


def chain_text(ops: int) -> str:
    """The same in numexpr's words."""
    text = "x"
    for _turn in range(ops // 2):
        text = f"({text} * 0.9 + 0.1)"
    return text


CHAIN = chain_text(10)


def run(threads: list[int], effort: Effort) -> Section:
    """Few elements: single ops and chains through the calls that users make."""
    s = Section("arrays", f"{TITLE}, few elements",
                "Python: recording a call, finding the program and calling it.")
    return _sizes(s, threads, effort, SMALL)


def run_large(threads: list[int], effort: Effort) -> Section:
    """Many elements: the same."""
    s = Section("arrays large", f"{TITLE}, many elements",
                "bandwidth for the peers, which write each intermediate; for long fused chains "
                "arithmetic. `PyTorch at the copy rate` is the largest possible ratio to PyTorch "
                "where each array is read and each result written once, as fast as the fastest "
                "copy here. Two ops on two arrays move 24 bytes per element if each writes its "
                "result, and 12 if they are fused: at most twice as fast. PyTorch's threads spin "
                "for a while after each of its calls and keep a core from what takes turns with "
                "it, so each turn begins with a rest. Without rests x + y of 100,000 on two "
                "cores is x0.56, and x6.6 with OMP_WAIT_POLICY=PASSIVE, which makes PyTorch six "
                "times slower.")
    return _sizes(s, threads, effort, LARGE)


def _sizes(s: Section, threads: list[int], effort: Effort, sizes: tuple[int, ...]) -> Section:
    for n in threads:
        peers.set_threads(n)
        with settings.using(threads=n):
            programs.forget()
            for size in sizes:
                _elementwise(s, n, effort, size)
    programs.forget()
    return s


def _elementwise(s: Section, n: int, effort: Effort, size: int) -> None:
    def case(name: str, f: Callable[..., Any], inputs: int = 2, **more: Any) -> None:
        case_of(s, n, effort, name, f, size, inputs, bounded=size == LARGE[-1], **more)

    case("x + y", lambda lib, x, y: x + y, text="x + y")
    case("maximum", lambda lib, x, y: lib.maximum(x, y))
    case("exp", lambda lib, x: lib.exp(x), 1, text="exp(x)", most=1.0)
    case("x ** 2 + y", lambda lib, x, y: x**2 + y, text="x ** 2 + y")
    case("where(x > y, x, y)", lambda lib, x, y: lib.where(x > y, x, y), text="where(x > y, x, y)")
    case("x + y + x", lambda lib, x, y: x + y + x, text="x + y + x")
    case("(x + y) * x - y", lambda lib, x, y: (x + y) * x - y, text="(x + y) * x - y")
    for ops, name in ((4, "four"), (8, "eight"), (10, "ten")):
        case(f"chain of {name}", functools.partial(chain, ops=ops), 1, text=chain_text(ops))
    case("sum", lambda lib, x: x.sum(), 1, text="sum(x)")
    case("max", lambda lib, x: x.max(), 1, text="max(x)")
    case("mean", lambda lib, x: x.mean(), 1)
    if size >= SMALL[-1]:
        case("sort", lambda lib, x: lib.sort(x), 1)
        case("argsort", lambda lib, x: lib.argsort(x), 1)
    if size in SMALL:
        case("concat", lambda lib, x, y: lib.concat([x, y]))
        case("stack", lambda lib, x, y: lib.stack([x, y]))
        case("sum of rows", lambda lib, x: x.reshape(-1, 2).sum(1), 1)
        case("reshape", lambda lib, x: x.reshape(-1, 2), 1)
        case("x[2:8]", lambda lib, x: x[2:8], 1)
        case("x[3]", lambda lib, x: x[3], 1)


OURS = Library(zt.ops.exp, zt.ops.log, zt.ops.sqrt, zt.ops.erf, zt.ops.where, zt.ops.maximum,
               zt.ops.one_hot, zt.ops.concat, zt.ops.stack, zt.ops.sort, zt.ops.argsort)
_erf = np.vectorize(math.erf)
NUMPY = Library(np.exp, np.log, np.sqrt, _erf, np.where, np.maximum,
                lambda x, n: np.eye(n, dtype=np.float32)[x], np.concatenate, np.stack, np.sort,
                functools.partial(np.argsort, kind="stable"))


def _torch_library(torch: Any) -> Library:
    return Library(torch.exp, torch.log, torch.sqrt, torch.erf, torch.where, torch.maximum,
                   lambda x, n: torch.nn.functional.one_hot(x, n).float(), torch.cat,
                   torch.stack, lambda x: torch.sort(x).values,
                   functools.partial(torch.argsort, stable=True))


def _jax_library(jax: Any) -> Library:
    return Library(jax.numpy.exp, jax.numpy.log, jax.numpy.sqrt, jax.scipy.special.erf,
                   jax.numpy.where, jax.numpy.maximum, jax.nn.one_hot, jax.numpy.concatenate,
                   jax.numpy.stack, jax.numpy.sort, jax.numpy.argsort)


def _jax_contestants(f: Callable[..., Any], arrays: list[np.ndarray]) -> list[Contestant]:
    """JAX op by op and compiled."""
    jax = peers.module("jax")
    if not jax:
        return []
    theirs = [jax.numpy.asarray(a) for a in arrays]
    library = _jax_library(jax)
    jitted = jax.jit(lambda *xs: f(library, *xs))
    return [Contestant("JAX", lambda: f(library, *theirs).block_until_ready()),
            Contestant("jax.jit", lambda: jitted(*theirs).block_until_ready())]


def _numexpr_contestant(text: str, threads: int, arrays: list[np.ndarray]) -> list[Contestant]:
    """numexpr's virtual machine, on an expression that it has compiled before."""
    numexpr = peers.module("numexpr")
    if not (numexpr and text):
        return []
    numexpr.set_num_threads(threads)
    named = dict(zip("xy", arrays, strict=False))
    numexpr.evaluate(text, named, truediv=True)
    return [Contestant("numexpr", lambda: numexpr.re_evaluate(named))]


def case_of(s: Section, threads: int, effort: Effort, name: str, f: Callable[..., Any], size: int,
            inputs: int = 1, numpy_too: bool = True, text: str = "", most: float = 150.0,
            bounded: bool = False) -> None:
    """A computation of arrays of numbers up to `most`, from a third of it on; `bounded`: by how
    fast they can be copied."""
    random = np.random.default_rng(size)
    arrays = [random.uniform(most / 3, most, size).astype(np.float32) for _ in range(inputs)]
    compared(s, threads, effort, f"{name}, {size:,}", f, arrays, numpy_too, text,
             bounded)


def compared(s: Section, threads: int, effort: Effort, case: str, f: Callable[..., Any],
             arrays: list[np.ndarray], numpy_too: bool, text: str = "", bounded: bool = False
             ) -> None:
    tensors = [zt.tensor(a) for a in arrays]
    ours = Contestant("ztorch", lambda: f(OURS, *tensors).realize())
    compiled = zt.compiled(lambda *xs: f(OURS, *xs))
    contestants = [ours, Contestant("zt.compiled", lambda: compiled(*tensors))]
    true = f(NUMPY, *(a.astype(np.float64) for a in arrays))
    errors = {"ztorch": error_of(f(OURS, *tensors).numpy(), true),
              "zt.compiled": error_of(compiled(*tensors).numpy(), true)}
    if numpy_too:
        contestants.append(Contestant("NumPy", lambda: f(NUMPY, *arrays)))
        errors["NumPy"] = error_of(f(NUMPY, *arrays), true)
    torch = peers.module("torch")
    if torch:
        theirs = [torch.from_numpy(a) for a in arrays]
        library = _torch_library(torch)
        contestants.append(Contestant("PyTorch eager", lambda: f(library, *theirs)))
        errors["PyTorch"] = error_of(f(library, *theirs).numpy(), true)
    if threads == 1:  # JAX's number of them cannot be changed in a process
        contestants += _jax_contestants(f, arrays)
    contestants += _numexpr_contestant(text, threads, arrays)
    error = peers.checked(case, 1e-4, **errors)
    timings = compare(contestants, threads == 1, effort)
    more = _limits(arrays, true, timings, threads) if bounded else {}
    s.compared(case, threads, timings, error, **more)


def _limits(arrays: list[np.ndarray], result: np.ndarray, timings: list[Timing], threads: int
            ) -> dict[str, str]:
    """The columns that say how near a time is to that of a copy, and what the ratio to PyTorch
    would be at that rate: nobody can read the arrays and write the result in less."""
    results = [np.empty(result.shape, np.float32)]
    moved = sum(x.nbytes for x in (*arrays, *results))
    theirs = [t.seconds * copying(moved, threads) / moved for t in timings if "PyTorch" in t.name]
    bound = {"PyTorch at the copy rate": f"x{theirs[0]:.2f}"} if theirs else {}
    return {**shares(arrays, results, 0, timings[0].seconds, threads), **bound}


def error_of(y: np.ndarray, true: np.ndarray) -> float:
    """The largest error, relative to the largest number."""
    return float(np.abs(y - true).max() / np.abs(true).max())
