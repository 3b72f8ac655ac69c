"""Every layer beside PyTorch, from one table: outputs, all gradients and twenty training steps.

A layer that is registered and not in the table fails here. Float64 is bit by bit the definition: the
oracle agrees with PyTorch and with finite differences to rounding. Compiled code is then held to
PyTorch's float64 within a number of units in the last place of its own dtype.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from tests import references
from tests.cases.covering import full, pairs, share
from tests.cases.grouping import together
from tests.layers.running import Traced, same
from tests.layers.torch_words import Words
from tests.layers.twin_cases import CASES, NESTED, NOT_IN_KERAS, PLAIN, Case, public
from tests.parity import GROUPS, HERE, SCALAR, WIDE, Arrays, Job, Module, interpreted
from ztorch import layers as L
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import first_value
from ztorch.graph.value import Graph
from ztorch.model.sequential import Sequential
from ztorch.model.trace import trace
from ztorch.optimizers import SGD

EPS = {"float32": 2.0**-23, "float64": 2.0**-52}
# Units in the last place of the largest of the results: sums of up to 64 terms, chained a few times.
# Attention loses more: scores of 50 are rounded, and then become exponents.
UNITS = {"MultiHeadAttention": 512, "TransformerEncoder": 512, "TransformerDecoder": 512}

FIRST = [case for k, case in enumerate(CASES) if k == 0 or CASES[k - 1].layer != case.layer]
BEST = HERE[-1]
slow = pytest.mark.slow


def units(case: Case) -> int:
    return UNITS.get(case.layer, 16)


def traced(case: Case, d: str = "float64") -> Traced:
    return Traced(case.make(), case.rows(), case.training, d)


def in_torch(case: Case, ours: Traced) -> list[Any]:
    """PyTorch's output and gradients in float64, in the order of ours."""
    torch = references.torch()
    learns = {w.path: w.trains for w in ours.layer.weights}
    weights = {path: torch.tensor(a, requires_grad=learns[path])
               for path, a in ours.weights.items()}
    x = torch.tensor(ours.array)
    x = x.long() if case.ids else x.requires_grad_()
    words = Words(weights, case.training, draws=ours.context.dtype.long)
    y = words(ours.layer, x)
    (y * torch.tensor(ours.slope)).sum().backward()
    return [y, *([] if case.ids else [x.grad]),
            *(weights[path].grad for path, learn in learns.items() if learn)]


# -- the table -------------------------------------------------------------------------------------


def test_every_layer_is_in_the_table() -> None:
    tried = {*PLAIN, *NESTED}
    assert not tried & {*NOT_IN_KERAS}
    assert tried | {*NOT_IN_KERAS} == {*public()}, "give each layer a twin, or the reason why it has none"
    for name in tried - {"Lambda", "Dot"}:
        assert isinstance(next(c for c in CASES if c.layer == name).make(), public()[name])


# -- outputs and gradients -------------------------------------------------------------------------


@together()
@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_and_gradients_are_pytorchs(case: Case) -> None:
    ours = traced(case)
    same(ours.oracle(), in_torch(case, ours), rtol=1e-11, atol=1e-12)


@together()
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_differences(case: Case) -> None:
    """Along one direction in the space of the input and all weights that train."""
    ours, random = traced(case), np.random.default_rng(3)
    wanted = [ours.feeds[v] for v in ours.wrt]
    ways = [random.normal(size=a.shape) for a in wanted]
    got = sum((g * way).sum() for g, way in zip(ours.oracle()[1:], ways, strict=True))
    h, ends = 1e-6, []
    for sign in (1, -1):
        moved = {v: a + sign * h * way for v, a, way in zip(ours.wrt, wanted, ways, strict=True)}
        [y] = evaluate([ours.y], {**ours.feeds, **moved}, oracle=True)
        ends.append((y * ours.slope).sum())
    np.testing.assert_allclose(got, (ends[0] - ends[1]) / (2 * h), rtol=1e-6, atol=1e-6)


def near(case: Case, got: Arrays, want: list[Any], d: str) -> None:
    for a, b in zip(got, want, strict=True):
        b = b.detach().numpy()
        size = max(1.0, float(np.abs(b).max()))
        np.testing.assert_allclose(a, b, rtol=0, atol=units(case) * EPS[d] * size,
                                   err_msg=f"{case} in {d}")


def compiled_all(cases: list[Case], target: str, d: str) -> None:
    all_ = [traced(case, d) for case in cases]
    compiled = Module([ours.job() for ours in all_], target)
    for k, (case, ours) in enumerate(zip(cases, all_, strict=True)):
        near(case, compiled.run(k), in_torch(case, ours), d)


# Scalar code of each op runs in lower/test_every_op.py, and C, which has its bits, in codegen/c.
@slow
@pytest.mark.parametrize("target", [BEST, pytest.param("scalar", marks=pytest.mark.full)])
@pytest.mark.parametrize("part", range(4))
def test_compiled_outputs_and_gradients_are_pytorchs(part: int, target: str) -> None:
    compiled_all(FIRST[part::4], target, "float32")


OTHERS = [case for case in CASES if case not in FIRST]
# Variants of a layer are other graphs of the same ops, each of which every level runs in
# lower/test_every_op.py: each is for one level and dtype, in turn, and every other one of a run that is
# not full, which compares all of them in float64.
TURNS = [*((t, "float32") for t in HERE), ("scalar", "float64"), (BEST, "float64")]


@slow
@pytest.mark.parametrize(("target", "d"), TURNS)
def test_every_variant_is_pytorchs(target: str, d: str) -> None:
    compiled_all(share(CASES if full() else OTHERS[::2], TURNS.index((target, d)), len(TURNS)), target, d)


LIMITS = {"scalar": SCALAR, "wide": WIDE, "groups": GROUPS}


# Each machine of the interpreter runs every op in lower/test_every_op.py: of the layers each fourth here,
# and each machine other ones.
@together(by="machine")
@slow
@pytest.mark.parametrize(("case", "machine"), pairs(FIRST if full() else FIRST[::4], list(LIMITS)), ids=str)
def test_the_interpreter_agrees(case: Case, machine: str) -> None:
    ours = traced(case, "float32")
    near(case, interpreted(ours.job(), LIMITS[machine]), in_torch(case, ours), "float32")


# -- training --------------------------------------------------------------------------------------

STEPS, SEED, BATCH = 20, 9, 3


def network(case: Case) -> Sequential:
    """The layer between two that learn as well: its gradient by inputs counts."""
    front = [] if case.ids else [L.Dense(case.shape[-1], name="front")]
    return Sequential([L.Input(case.shape, dtype="int32" if case.ids else None), *front,
                       case.make(), L.Flatten(name="row"), L.Dense(2, name="head")], seed=SEED)


def rate(model: Sequential) -> float:
    """Small enough for the head to settle, however many numbers it sees; and for products of what
    learns, whose slopes grow with the square of weights."""
    steep = any(isinstance(getattr(layer, "merge", None), L.Dot)
                for layer in model.layers)
    return min(0.001 if steep else 0.02, 0.2 / len(model.named_weights()["head/kernel"].value))


def batches(case: Case) -> tuple[np.ndarray, np.ndarray]:
    x = case.rows(BATCH * STEPS).reshape(STEPS, BATCH, *case.shape)
    return x, np.random.default_rng(8).normal(size=(STEPS, BATCH, 2))


def trained(compiled: Module, k: int, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """States of job k after one step on each batch."""
    call = compiled.executable.bind(f"j{k}")
    feeds = {name.split(".")[0]: array for name, array in call.inputs.items()}
    feeds["w"][...] = feeds["real"][...] = 1.0
    for rows, wanted in zip(x, y, strict=True):
        feeds["x"][...], feeds["y"][...] = rows, wanted
        call()
    return {name.split("/", 1)[1]: compiled.executable.state(name)
            for name in compiled.graphs[f"j{k}"].updates}


@functools.cache  # every target is compared with it
def train_in_torch(case: Case, d: str) -> tuple[dict[str, Any], float]:
    """The same steps in float64 with the random numbers of a model of that dtype: weights, and the
    largest number that a gradient held."""
    torch, model, (x, y) = references.torch(), network(case), batches(case)
    first = {n: w.value for n, w in model.named_weights().items()}
    learns = {n: w.trains for n, w in model.named_weights().items()}
    weights = {n: torch.tensor(a.astype(np.float64), requires_grad=learns[n])
               for n, a in first.items()}
    words = Words(weights, training=True, seed=SEED, draws=d)
    learning = [w for n, w in weights.items() if learns[n]]
    sgd, largest = torch.optim.SGD(learning, lr=rate(model)), 0.0
    for rows, wanted in zip(x, y, strict=True):
        tensor = torch.tensor(rows)
        result = words(model, tensor.long() if rows.dtype.kind == "i" else tensor)
        loss = torch.nn.functional.mse_loss(result, torch.tensor(wanted))
        sgd.zero_grad()
        loss.backward()
        largest = max(largest, *(float(w.grad.abs().max()) for w in learning))
        sgd.step()
        words.step += 1
        with torch.no_grad():
            for name, now in words.moved.items():
                weights[name].copy_(now)
    return {n: w.detach().numpy() for n, w in weights.items()}, largest


def train_all(cases: list[Case], target: str, d: str) -> None:
    """Each step rounds a weight once, and its gradient by as many units as above; what a step is
    off, later ones may double. Float64 gets the same bound in its own units."""
    models = [network(case) for case in cases]
    jobs = []
    for model in models:
        graph = trace(model, BATCH, SGD(rate(model)), "mse", dtype_=d).functions["train"]
        jobs.append(Job(Graph({"loss": graph.outputs["loss"]}, graph.updates), {
            v: first_value(v) if v.attrs["role"] == "state" else np.zeros(v.shape, v.dtype.numpy)
            for role in ("state", "input") for v in graph.leaves(role)}))
    compiled = Module(jobs, target)
    for k, (case, model) in enumerate(zip(cases, models, strict=True)):
        first = {n: w.value for n, w in model.named_weights().items()}
        x, y = batches(case)
        want, largest = train_in_torch(case, d)
        got = trained(compiled, k, x, y)
        for name, w in model.named_weights().items():
            if name not in got:
                assert not w.trains, name
                continue
            size = max(1.0, float(np.abs(want[name]).max()))
            bound = 2 * STEPS * EPS[d] * (size + rate(model) * units(case) * max(largest, 1.0))
            np.testing.assert_allclose(got[name], want[name], rtol=0, atol=bound,
                                       err_msg=f"{case}: {name} on {target} in {d}")
            assert np.isfinite(got[name]).all(), f"{case}: {name}"
            if name == "head/kernel":
                assert np.abs(got[name] - first[name]).max() > 5e-5, f"{case} learned nothing"


TRAINING = [(BEST, "float32"), *((t, "float32") for t in HERE[:-1]), (BEST, "float64")]


@slow
@pytest.mark.parametrize(("target", "d"), TRAINING)
def test_the_same_weights_after_twenty_steps(target: str, d: str) -> None:
    """Each layer on one level and dtype, in turn; a full run trains all on all."""
    train_all(share(FIRST, TRAINING.index((target, d)), len(TRAINING)), target, d)


@slow
@pytest.mark.parametrize("part", range(4))
def test_every_variant_trains_as_pytorch_does(part: int) -> None:
    variants = [case for case in OTHERS if case.layer != "Activation"]
    train_all(share(variants[part::4], part, 12), BEST, "float32")
