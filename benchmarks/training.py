"""Training: one step of the MLP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import machine, peers
from benchmarks.report import Section
from benchmarks.timing import Contestant, Effort, compare
from ztorch import optimizers

BATCHES = (32, 128)
OPTIMIZERS = ("SGD", "Adam")
# Keras and PyTorch put Adam's epsilon at different places of the formula: here it is next to none.
EPSILON: dict[str, dict[str, Any]] = {"SGD": {}, "Adam": {"epsilon": 1e-12}}
RATE = 1e-3
STEPS = 5  # before the weights of all are compared


def run(threads: list[int], effort: Effort) -> Section:
    """Forward, cross-entropy, backward and optimizer on one batch."""
    s = Section("training", "MLP 784-512-512-10, one training step",
                "three products where inference has one (less the first layer's input gradient): "
                "the FMA peak. Adam also reads and writes 8 MB of weights and moments each step, "
                f"at L2 or L3 bandwidth. The error is that of {STEPS} steps: how far the weights "
                "end from PyTorch's in float64, over how far they went.")
    model = peers.mlp()
    weights = model.get_weights()
    for n in threads:
        peers.set_threads(n)
        for optimizer in OPTIMIZERS:
            for batch in BATCHES:
                _case(s, model, weights, optimizer, batch, n, effort)
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
