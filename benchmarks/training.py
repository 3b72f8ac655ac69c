"""Training: one step of the MLP, and one of Muon for a single matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import machine, peers
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch import Sequential, optimizers
from ztorch import layers as L

BATCHES = (32, 128)
OPTIMIZERS = ("SGD", "Adam")
# Keras and PyTorch put Adam's epsilon at different places of the formula: here it is next to none.
EPSILON: dict[str, dict[str, Any]] = {"SGD": {}, "Adam": {"epsilon": 1e-12}}
RATE = 1e-3
MATRICES = ((512, 784), (512, 512), (128, 256))  # of Muon: units and inputs
POLYNOMIAL = (3.4445, -4.775, 2.0315)
STEPS = 5  # before the weights of all are compared


def run(threads: list[int], effort: Effort) -> Section:
    """Forward, cross-entropy, backward and optimizer on one batch."""
    s = Section("training", "MLP 784-512-512-10, one training step",
                "three products where inference has one (less the first layer's input gradient): "
                "the FMA peak. Adam also reads and writes 8 MB of weights and moments each step, "
                f"at L2 or L3 bandwidth. The error is that of {STEPS} steps: how far the weights "
                "end from PyTorch's in float64, over how far they went. Muon is products of its "
                "matrix alone, 15 in a step; ours are in float32, as Keras', and symmetric ones "
                "compute little more than half. PyTorch's are in bfloat16, which processors with "
                "AVX-512 BF16 multiply at twice the rate; `float32` is the same step without that.")
    model = peers.mlp()
    weights = model.get_weights()
    for n in threads:
        peers.set_threads(n)
        for optimizer in OPTIMIZERS:
            for batch in BATCHES:
                _case(s, model, weights, optimizer, batch, n, effort)
        for matrix in MATRICES[-1:] if effort.least <= 3 else MATRICES:
            _muon(s, *matrix, n, effort)
    return s


def _case(s: Section, model: Any, weights: peers.Weights, optimizer: str, batch: int,
          threads: int, effort: Effort) -> None:
    random = np.random.default_rng(5)
    x = random.random((batch, 784), np.float32)
    y = random.integers(0, 10, batch).astype(np.int32)
    model.set_weights(weights)  # it keeps what the case before has learned
    ours, after = _ours(model, optimizer, x, y, threads)
    contestants, results = [ours], {"ztorch": after}
    torch = peers.module("torch")
    true = after
    if torch:
        true = _torch(weights, optimizer, x, y, "double")[1]
        for kind in ("eager", "fused", *(() if peers.no_compiler() else ("compile",))):
            contestant, results[kind] = _torch(weights, optimizer, x, y, kind)
            contestants.append(contestant)
    # Adam divides a gradient by its own size, so that rounding decides the sign of a step where
    # the gradient is almost zero: single weights may differ, all of them together may not.
    error = peers.checked(f"{optimizer}, batch {batch}", 1e-2, **{
        name: _distance(trained, true, weights) for name, trained in results.items()})
    timings = compare([*contestants, machine.peak(threads)], threads == 1, effort)
    kernels = [w.size for w in weights[::2]]
    flops = 2.0 * batch * (3 * sum(kernels) - kernels[0])
    share = timings[-1].ratio * flops / machine.fma_call(threads)[1]
    s.compared(f"{optimizer}, batch {batch}", threads, timings[:-1], error,
               **{"of FMA peak": f"{share:.0%}"})


def _distance(trained: list[np.ndarray], true: list[np.ndarray], first: peers.Weights) -> float:
    """The distance from the true weights, relative to how far training moved them (L2)."""
    error = sum(float(np.square(f - t).sum()) for f, t in zip(trained, true, strict=True))
    moved = sum(float(np.square(t - w).sum()) for t, w in zip(true, first, strict=True))
    return float(np.sqrt(error / moved)) if moved else np.inf


def _ours(model: Any, optimizer: str, x: np.ndarray, y: np.ndarray,
          threads: int) -> tuple[Contestant, list[np.ndarray]]:
    program = model.compile("cpu", batch_size=len(x), threads=threads,
                            optimizer=getattr(optimizers, optimizer)(RATE, **EPSILON[optimizer]),
                            loss="sparse_categorical_crossentropy")
    executable = program.executable
    step = executable.bind("train")
    for name, array in {"x": x, "y": y.reshape(step.inputs["y"].shape), "w": 1.0,
                        "real": 1.0}.items():
        step.inputs[name][...] = array
    first = executable.states_snapshot()
    for _ in range(STEPS):
        step()
    after = program.get_weights()
    return Contestant("ztorch", step, lambda: executable.restore(first)), after


def _torch(weights: peers.Weights, optimizer: str, x: np.ndarray, y: np.ndarray,
           kind: str) -> tuple[Contestant, list[np.ndarray]]:
    """PyTorch's step: plain, with a fused optimizer, compiled, or in float64 as the measure."""
    torch = peers.module("torch")
    model = peers.torch_mlp(weights, softmax=False)
    tx, ty = torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))
    if kind == "double":
        model, tx = model.double(), tx.double()
    more: dict[str, Any] = {"fused": True} if kind == "fused" else {}
    if optimizer == "Adam":
        more["eps"] = EPSILON["Adam"]["epsilon"]
    opt = getattr(torch.optim, optimizer)(model.parameters(), lr=RATE, **more)
    loss_of: Callable[..., Any] = lambda a, b: torch.nn.functional.cross_entropy(model(a), b)  # noqa: E731
    update: Callable[[], Any] = opt.step
    if kind == "compile":
        torch._dynamo.reset()
        loss_of, update = torch.compile(loss_of), torch.compile(opt.step)

    def step() -> None:
        opt.zero_grad(set_to_none=True)
        loss_of(tx, ty).backward()
        update()

    first = [p.detach().clone() for p in model.parameters()]
    for _ in range(STEPS):
        step()
    after = [p.detach().numpy().T.copy() for p in model.parameters()]

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def reset() -> None:
        for p, p0 in zip(model.parameters(), first, strict=True):
            p.copy_(p0)
        for state in opt.state.values():
            for value in state.values():
                if torch.is_tensor(value):
                    value.zero_()

    name = {"eager": "PyTorch eager", "fused": "eager, fused optimizer",
            "compile": "torch.compile"}.get(kind, kind)
    return Contestant(name, step, reset), after


def _muon(s: Section, units: int, inputs: int, threads: int, effort: Effort) -> None:
    """A step of Muon for the kernel of one layer, with the mean of squares as its loss."""
    model = Sequential([L.Input((inputs,)), L.Dense(units, use_bias=False)], seed=7)
    random, weights = np.random.default_rng(6), model.get_weights()
    x = random.standard_normal((32, inputs), np.float32)
    program = model.compile("cpu", batch_size=len(x), threads=threads, loss="mse",
                            optimizer=optimizers.Muon(RATE, weight_decay=None))
    executable = program.executable
    ours = executable.bind("train")
    for name, array in {"x": x, "y": 0.0, "w": 1.0, "real": 1.0}.items():
        ours.inputs[name][...] = array
    first = executable.states_snapshot()
    ours()
    trained = {"ztorch": program.get_weights()}
    contestants = [Contestant("ztorch", ours, lambda: executable.restore(first))]
    torch, true = peers.module("torch"), trained["ztorch"]
    if torch:
        true = _torch_muon(torch, weights[0], x, "double")[1]
        for kind in ("eager", "float32") if hasattr(torch.optim, "Muon") else ("float32",):
            step, trained[kind] = _torch_muon(torch, weights[0], x, kind)
            contestants.append(Contestant("PyTorch eager" if kind == "eager" else kind, step))
    case = f"Muon, {units} x {inputs}"
    errors = {name: _distance(w, true, weights) for name, w in trained.items()}
    rounding = errors.pop("eager", 0.0)  # of bfloat16, where the gradient of 32 rows is zero:
    peers.checked(case, 0.5, ztorch=rounding)  # each polynomial makes it 3.4 times as large
    error = peers.checked(case, 1e-2, **errors)
    s.compared(case, threads, compare(contestants, threads == 1, effort), error)


def _torch_muon(torch: Any, kernel: np.ndarray, x: np.ndarray,
                kind: str) -> tuple[Callable[[], None], list[np.ndarray]]:
    """PyTorch's step, which is in bfloat16, or the same in float32 or float64."""
    dtype = torch.float64 if kind == "double" else torch.float32
    w = torch.nn.Parameter(torch.from_numpy(kernel.T.copy()).to(dtype))
    tx, momentum = torch.from_numpy(x).to(dtype), torch.zeros_like(w)
    rate = RATE * 0.2 * max(w.shape) ** 0.5
    own = torch.optim.Muon([w], RATE, weight_decay=0.0, adjust_lr_fn="match_rms_adamw") if (
        kind == "eager") else None

    def step() -> None:
        w.grad = None
        torch.square(tx @ w.T).mean().backward()
        if own is not None:
            own.step()
            return
        with torch.no_grad():
            momentum.mul_(0.95).add_(w.grad)
            w.sub_(_orthogonal(torch, w.grad + 0.95 * momentum), alpha=rate)

    step()
    return step, [w.detach().numpy().T.copy()]


def _orthogonal(torch: Any, g: Any) -> Any:
    """Newton-Schulz, as PyTorch's Muon has it."""
    a, b, c = POLYNOMIAL
    tall = g.shape[0] > g.shape[1]
    g = g.T if tall else g
    g = g / g.norm().clamp(min=1e-7)
    for _ in range(5):
        square = g @ g.T
        g = torch.addmm(g, torch.addmm(square, square, square, beta=b, alpha=c), g, beta=a)
    return g.T if tall else g
