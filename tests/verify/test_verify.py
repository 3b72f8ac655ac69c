"""ztorch verify: good programs pass everywhere, broken ones are found, and the layer is named."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import ztorch as zt
from tests.cases.available import COMPUTING, PLAYED, device
from tests.parity import HERE
from ztorch import layers as L
from ztorch import ops
from ztorch.cli import main
from ztorch.commands import verify
from ztorch.dtypes import dtype, from_storage, to_storage
from ztorch.graph.op import leaf
from ztorch.graph.rounding import bounded
from ztorch.host.settings import using
from ztorch.ir.opcodes import OPCODES
from ztorch.lower.locations import Location
from ztorch.sources.recipe import Recipe
from ztorch.verify import compare as comparing
from ztorch.verify.compare import Check, compare
from ztorch.verify.probes import last_writer, probes

FILE = """
from ztorch import Model, Sequential, layers as L
LOSS, OPTIMIZER = "mse", "adam"

def build():
    return Sequential([L.Input((6,)), L.Dense(8, "relu", name="first"),
                       L.Dense(8, "tanh", name="second"), L.Dense(8, "gelu", name="third"),
                       L.Dropout(0.2), L.Dense(3, name="last")], name="own")

def several():
    a, b = L.Input((4,), name="a"), L.Input((3,), name="b")
    joined = L.Concatenate()([L.Dense(5, "tanh", name="left")(a), b])
    return Model({"a": a, "b": b}, {"p": L.Dense(2, name="p")(joined),
                                    "q": L.Dense(1, name="q")(joined)}, name="two")
"""
PLACES = [*(f"cpu:{level}" for level in HERE), *COMPUTING]
BEST = f"cpu:{HERE[-1]}"


def few(*quick: str, others: pytest.MarkDecorator = pytest.mark.slow) -> pytest.MarkDecorator:
    """The best level and every device, of which the inner loop takes some; or each run, where the others
    are marked so. Behavior shared by all devices is tried on a different one by each test."""
    return pytest.mark.parametrize("where", [
        pytest.param(p, marks=() if p in (BEST, *quick) else others) for p in (BEST, *COMPUTING)])


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(FILE)
    return "net.py:build"


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["verify", *map(str, words)])


def place(name: str) -> str:
    return name if ":" in name else device(name).id


@contextmanager
def broken(opcode: str) -> Iterator[None]:
    """An opcode that every target rewrites, rewritten a little wrongly."""
    row = OPCODES[opcode]
    assert row.via is not None
    via = row.via
    OPCODES[opcode] = row._replace(via=lambda b, x: b.mul(via(b, x), 1.001))
    try:
        with using(cache=None):  # programs of the right word may be there
            yield
    finally:
        OPCODES[opcode] = row


@pytest.mark.parametrize("where", [  # the zoo is verified on every device in backends/test_zoo.py
    pytest.param(p, marks=pytest.mark.full if p in PLAYED[:-1] else ()) for p in PLACES])
def test_a_good_model(net: str, where: str) -> None:
    output = run(net, "--device", place(where), "--steps", 2)
    assert output.exit_code == 0, output.output
    lines = output.stdout.splitlines()
    assert lines[0].startswith("own on ") and lines[-1].startswith("verified: ")
    named = {line.split("  ")[0] + line.split("layer ")[-1].split()[0]
             for line in lines if " layer " in line}
    assert {f"{part}{layer}" for part in ("predict", "step 1", "step 1 backward")
            for layer in ("second", "third")} <= named
    assert "state" in output.stdout and "output loss" in output.stdout and "DIVERGES" not in output.stdout


@few("opencl", others=pytest.mark.full)
@pytest.mark.parametrize(("opcode", "part", "layer"), [
    ("tanh", "predict", "second"), ("exp", "step 1 backward", "third")])
def test_a_changed_instruction_is_detected(net: str, where: str, opcode: str, part: str, layer: str) -> None:
    """exp occurs in the gradient of the third layer's gelu alone."""
    at = place(where)
    with broken(opcode):
        output = run(net, "--device", at, "--steps", 1)
    assert output.exit_code == 1
    assert f"diverges first in layer {layer} ({part}): an error of " in output.stderr
    assert f"its kernel is k{output.stderr.split('its kernel is k')[1].split('.')[0]}" in output.stderr
    assert layer in output.stderr.split("its kernel is ")[1].split(".")[0]  # kernels read like models
    assert output.stdout.count("DIVERGES") >= 1 and "verified" not in output.stdout
    told = shlex.split(output.stderr.split("`ztorch ")[1].split("`")[0])
    assert CliRunner().invoke(main, told).exit_code == 0, told


@pytest.mark.slow
@few("webgpu", others=pytest.mark.full)
def test_an_artifact_runs_its_own_code(net: str, where: str) -> None:
    from ztorch.sources.find import find

    def saved(name: str) -> str:
        made = find(net).model.compile(place(where), batch_size=4, loss="mse", optimizer="adam",
                                       metrics=["mae"])
        x, y = np.random.default_rng(0).random((8, 6)), np.zeros((8, 3))
        made.fit(x, y, epochs=1, verbose=0)
        made.save(name)
        return name

    good = run(saved("good.zt"), "--steps", 1)
    assert good.exit_code == 0 and "verified" in good.stdout, good.output
    with broken("tanh"):
        saved("bad.zt")
    bad = run("bad.zt", "--steps", 1)
    assert bad.exit_code == 1
    assert "diverges first in output y (predict)" in bad.stderr
    assert "so the code in bad.zt is faulty: export it again" in bad.stderr
    late = run("good.zt", "--device", "cpu")
    assert late.exit_code == 0 and "verified" in late.stdout  # its model, compiled again


@few("vulkan", others=pytest.mark.full)
def test_a_step_that_is_skipped(where: str) -> None:
    """In float16 the first gradients of this model are infinite, so its weights stay, as they must."""
    model = zt.Sequential([L.Input((6,)), L.Rescaling(2000.0), L.Dense(8), L.Dense(1)])
    recipe = Recipe(model, loss="mse", optimizer="adam")
    subject = verify.of_recipe(recipe, place(where), 4, "mixed_float16")
    before = subject.executable.states_snapshot()
    assert [c for c in compare(subject, 1, seed=0) if not c.passed] == []
    after = subject.executable.states_snapshot()
    changed = {n for n, a in after.items() if not np.array_equal(a, before[n])}
    assert changed == {"optimizer/loss_scale"} and after["optimizer/loss_scale"] == 2.0**14


def test_several_inputs_and_outputs(net: str) -> None:
    from ztorch.sources.find import find

    model = find("net.py:several").model
    made = model.compile("cpu", batch_size=4, loss={"p": "mae", "q": zt.losses.Huber(0.3)},
                         loss_weights={"p": 0.5}, optimizer=zt.optimizers.SGD(0.1, momentum=0.9))
    made.save("two.zt")
    output = run("two.zt")
    assert output.exit_code == 0, output.output
    assert all(f"output {n}" in output.stdout for n in ("y/p", "y/q", "p_loss", "q_loss"))
    with broken("tanh"):
        made = model.compile("cpu", batch_size=4)
    made.save("bad.zt")
    assert "diverges first in output y/p" in run("bad.zt").stderr


def test_a_model_that_cannot_be_written_down(tmp_path: Path) -> None:
    model = zt.Sequential([L.Input((3,)), L.Dense(2), L.Lambda(lambda x: x * 2.0, name="twice")])
    model.compile("cpu", batch_size=2).save(tmp_path / "m.zt")
    output = run(tmp_path / "m.zt")
    assert output.exit_code == 1 and "'twice' is a Lambda" in output.stderr
    assert "declares no model" in output.stderr


def test_a_comparison_passes_up_to_its_bound_and_no_further() -> None:
    at, beyond = (Check("predict", "y", error, 1.0, "k0") for error in (1.0, 1.001))
    assert at.passed and not beyond.passed
    far, near = (Check("predict", "z", error, 1.0, "k1") for error in (5.0, 0.5))
    assert comparing._worst([near, at, beyond, far]) is beyond  # the first that failed
    assert comparing._worst([near, at]) is at


def test_nan_is_an_error_unless_expected() -> None:
    y = leaf("input", "y", (2,), "float32")
    good, bad = np.array([1.0, 2.0], np.float32), np.array([1.0, np.nan], np.float32)
    errors = [comparing._check("predict", "y", y, got, (want, 0.1), "k0").error
              for want in (good, bad) for got in (good, bad)]
    assert errors == [0.0, np.inf, np.inf, 0.0]


def test_a_difference_names_the_last_writer() -> None:
    def step(name: str, place: Location, writes: bool) -> Any:
        return SimpleNamespace(kernel=SimpleNamespace(name=name), locations=(place,), writes=(writes,))

    place, other = Location("params", 64, 4), Location("params", 0, 4)
    steps = [step("first", place, True), step("second", place, True), step("other", other, True),
             step("reader", place, False)]
    plan: Any = SimpleNamespace(steps=steps)
    assert last_writer(plan, "params", 64) == (1, "second")
    assert last_writer(plan, "arena", 64)[0] == -1


def test_an_absent_chip(net: str) -> None:
    output = run(net, "--device", "cuda:sm_90")
    assert output.exit_code == 1 and "names a chip" in output.stderr


@pytest.mark.parametrize("n", [1, 100, 10_000])
@pytest.mark.parametrize("d", [np.float32, np.float64])
def test_bounds_hold_and_are_near(n: int, d: type) -> None:
    """NumPy's own float sums stay inside; their error bound grows with their length."""
    rng = np.random.default_rng(n)
    a = rng.normal(size=n)
    x = leaf("input", "x", (n,), str(np.dtype(d)))
    feeds = {x: a.astype(d)}
    y = ops.sum(ops.exp(x))
    [(want, bound)] = bounded([y], feeds)
    got = np.float64(np.cumsum(np.exp(a.astype(d)))[-1])  # one after the other: the worst way
    size, eps = float(want), float(np.finfo(d).eps)
    assert abs(got - want) <= bound
    assert eps * size / 4 < bound < 20 * eps * size * np.sqrt(n)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("k", [64, 4096])
def test_sums_of_16_bits_are_compared_in_their_own_precision(name: str, k: int) -> None:
    """A product is off by a few roundings of itself, not of all its terms: a part left out shows."""
    rng, d = np.random.default_rng(k), dtype(name)
    x, w = leaf("input", "x", (8, k), name), leaf("input", "w", (k, 8), name)
    feeds = {v: from_storage(d, to_storage(d, rng.normal(size=v.shape))) for v in (x, w)}
    [(want, bound), (_, total)] = bounded([ops.matmul(x, w), ops.sum(x)], feeds)
    a, b = (f.astype(np.float32) for f in feeds.values())
    cut = sum(from_storage(d, to_storage(d, p @ q)).astype(np.float32)  # as where tiles are few
              for p, q in zip(np.split(a, 8, 1), np.split(b, 8, 0), strict=True))
    assert np.abs(from_storage(d, to_storage(d, cut)) - want).max() <= bound
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[name]
    assert bound < 40 * eps * np.abs(want).max() and total < 80 * eps * np.sqrt(8 * k)


def test_what_cancels_may_be_off_by_much() -> None:
    x = leaf("input", "x", (2,), "float32")
    near = (x + 1e4) - 1e4
    far = x * 2.0
    feeds = {x: np.array([1e-3, 2e-3])}
    (_, wide), (_, narrow) = bounded([near, far], feeds)
    assert wide > 1e-4 and narrow < 1e-8


def test_layers_are_compared_where_their_tensors_were_computed() -> None:
    """Movements between layers are not: the tensor before them is."""
    model = zt.Sequential([L.Input((2, 3)), L.Dense(4, name="first"), L.Flatten(), L.Permute((1,)),
                           L.Dense(5, name="second"), L.Dense(1, name="last")])
    graph = model.trace(batch_size=2).functions["predict"]
    assert [(p.layer, p.phase, p.value.shape, p.value.op.movement) for p in probes(graph)] == [
        ("first", "", (2, 2, 4), False), ("second", "", (2, 5), False), ("last", "", (2, 1), False)]
    model = zt.Sequential([L.Input((2, 3)), L.Lambda(lambda x: ops.transpose(ops.exp(x), (0, 2, 1)), name="turned"),
                           L.Dense(5, name="last")])
    graph = model.trace(batch_size=2).functions["predict"]
    assert [(p.layer, p.value.shape) for p in probes(graph)] == [("turned", (2, 2, 3)), ("last", (2, 3, 5))]


def test_states_are_compared_after_each_step() -> None:
    recipe = Recipe(zt.Sequential([L.Input((3,)), L.Dense(2, name="d")]), loss="mse", optimizer="sgd")
    checks = list(compare(verify.of_recipe(recipe, "cpu:scalar", 2, "float32"), 2, seed=0, layers=False))
    assert [check for check in checks if not check.passed] == []
    assert [check.part for check in checks if check.layer.startswith("state d/")] == ["step 1", "step 2"]
