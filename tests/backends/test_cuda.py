"""The CUDA driver on a pretended device: the contract that all drivers keep, CUDA's own features, and
whole models whose rendered PTX runs thread by thread."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import numpy as np
import pytest

from models import digits_mlp
from tests.cases import available, contract, doubled
from tests.cases.device_programs import all_agree
from tests.cases.jobs import parts, sharing
from tests.cases.pretended_cuda import close, install
from tests.cases.zoo import BATCH, STEPS, rows, small
from tests.machines.fake_cuda import FakeCuda
from tests.machines.ptx.parse import Program
from tests.numpy_executable import compile_numpy
from ztorch.backends import cuda_calls, gpu_graphs, registry
from ztorch.backends.drivers import cuda
from ztorch.commands.explain_measured import measured
from ztorch.commands.explain_table import as_text
from ztorch.commands.train import compiled
from ztorch.compile.targeting import target_for
from ztorch.errors import DeviceError
from ztorch.machines import chips
from ztorch.machines.gpus import gpu
from ztorch.performance.step import predict_functions
from ztorch.runtime.devices import resolve
from ztorch.sources.recipe import optimizer


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = install(monkeypatch)
    yield made
    close(made)


CONTRACT = [check for name, check in vars(contract).items() if name.startswith("test_")]


@pytest.mark.parametrize("check", [c for c in CONTRACT if list(inspect.signature(c).parameters) == ["name"]],
                         ids=lambda c: c.__name__)
def test_contract(check: object, fake: FakeCuda) -> None:
    check("cuda")  # type: ignore[operator]
    assert fake.pushed == 0, "a context was left current"


SHARE = sharing(0, 3)


@pytest.mark.parametrize("ops", [
    pytest.param(ops, id=f"{k}", marks=pytest.mark.slow if k else ()) for k, ops in enumerate(parts(SHARE, 12))])
def test_every_op(ops: list[str], fake: FakeCuda) -> None:
    """The rendered PTX of every op and its gradient, thread by thread."""
    all_agree("cuda", [job for op in ops for job in SHARE[op]])
    assert "cuGraphLaunch" in fake.calls


# -- whole models ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [
    "digits_mlp", *(pytest.param(n, marks=pytest.mark.slow) for n in ("digits_cnn", "lstm_classifier")),
    # These train on the devices of test_zoo.py, and their ops and gradients run above.
    *(pytest.param(n, marks=pytest.mark.full) for n in ("text_classifier", "autoencoder", "tabular_regressor"))])
def test_models_train_as_their_ops_say(name: str, fake: FakeCuda) -> None:
    recipe, losses, predicted = small(name), [], []
    here = compile_numpy(recipe.model, BATCH, optimizer(recipe.optimizer, recipe.learning_rate), recipe.loss)
    for program in (here, compiled(recipe, "cuda:0", BATCH)):
        x, y = rows(program.executable, program.metadata, recipe, STEPS)
        losses.append(program.fit(x, y, epochs=1, verbose=0, shuffle=False).history["loss"])
        predicted.append(program.predict(x))
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    np.testing.assert_allclose(predicted[1], predicted[0], rtol=0, atol=1e-4)


@pytest.mark.slow
def test_the_order_between_barriers_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph may run launches that no barrier parts in any order, or at once."""
    weights = []
    for shuffled in (False, True):
        with monkeypatch.context() as patch:
            fake = install(patch, shuffled=shuffled)
            program = compiled(small("digits_mlp"), "cuda", BATCH)
            x, y = rows(program.executable, program.metadata, small("digits_mlp"), 2)
            program.fit(x, y, verbose=0, shuffle=False)
            weights.append(program.get_weights())
            close(fake)
    for a, b in zip(*weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("early", [True, False])
def test_launches_wait_only_at_barriers(early: bool, fake: FakeCuda,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that wait by themselves are put in place before those before them end."""
    monkeypatch.setenv("ZTORCH_EARLY_LAUNCHES", str(int(early)))
    d = available.device("cuda")
    module, (launch, *_), _ = doubled.loaded(d)
    graphs: list[dict] = []
    keep = FakeCuda.do_cuGraphInstantiate
    fake.__dict__["cuGraphInstantiate"] = lambda g, f: (
        graphs.append(dict(fake.held(g, dict))), fake.call("cuGraphInstantiate", g, f))[1]
    assert keep is FakeCuda.do_cuGraphInstantiate
    d.record(module, [launch._replace(barrier=b) for b in (False, False, True, False, True, True)])
    names = {n: k for k, n in enumerate(graphs[0])}
    after = [sorted(names[a] for a in node.after) for node in graphs[0].values()]
    kernels = [node.entry is not None for node in graphs[0].values()]
    assert all(node.early == set(node.after if early else ()) for node in graphs[0].values())
    if early:
        assert all(kernels) and after == [[], [], [0, 1], [0, 1], [2, 3], [4]]
    else:
        assert kernels == [True, True, False, True, True, False, True, True]
        assert after == [[], [], [0, 1], [2], [2], [3, 4], [5], [6]]


def test_many_launches_are_joined(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """As each edge of an early launch is one of its own, there may be too many."""
    monkeypatch.setattr(gpu_graphs, "EARLY_EDGES", 2)
    d = available.device("cuda")
    module, (launch, *_), _ = doubled.loaded(d)
    recorded = d.record(module, [launch._replace(barrier=b) for b in (*[False] * 3, True, True, False)])
    nodes = [node for node in fake.held(recorded.handle.launches_only, list) if node.entry]
    assert [bool(node.early) for node in nodes] == [*[False] * 4, True, True]


@pytest.mark.parametrize("call", ["cuGraphAddDependencies", "cuGraphInstantiate"])
def test_a_driver_that_refuses_early_launches(call: str, fake: FakeCuda) -> None:
    """Launches wait for those before them then, which is said once."""
    d = available.device("cuda")
    module, launches, buffers = doubled.loaded(d, chained=2)

    def refuse(graph: object, *args: object) -> tuple:
        if call != "cuGraphInstantiate" or any(node.early for node in fake.held(graph, dict).values()):
            return fake.real.CUresult.CUDA_ERROR_NOT_SUPPORTED, None
        return fake.call(call, graph, *args)

    fake.__dict__[call if call.endswith("Instantiate") else f"cu{cuda_calls.edges_call()}"] = refuse
    with pytest.warns(UserWarning, match=rf"launches do not start early, .*{call[2:]}.*NOT_SUPPORTED"):
        d.record(module, launches)
    recording = d.record(module, launches)
    d.write(buffers["inputs"], np.ones(doubled.N, np.float32))
    d.run(recording)
    out = np.empty(doubled.N, np.float32)
    d.read(buffers["outputs"], out)
    assert (out == 4).all()


def test_a_kernel_that_cannot_be_prepared_leaves_no_module(fake: FakeCuda) -> None:
    d = available.device("cuda")
    code, entries, _ = doubled.doubling(d)
    fake.fail["cuFuncSetAttribute"] = "INVALID_VALUE"
    with pytest.raises(DeviceError, match=r"cuFuncSetAttribute.*INVALID_VALUE"):
        d.load(code, [e._replace(shared=64 << 10) for e in entries])
    assert not any(isinstance(held, Program) for held in fake.handles.values())


@pytest.mark.filterwarnings("error")
def test_no_launch_is_early_behind_a_cooperative_one(fake: FakeCuda) -> None:
    """A driver may refuse it. Later launches are early again."""
    d = available.device("cuda")
    module, (first, second), buffers = doubled.loaded(d, chained=2)
    module.entries *= 2
    module.handle = module.handle._replace(functions=module.handle.functions * 2, early=frozenset({0, 1}),
                                           meeting=frozenset({0}))
    recording = d.record(module, [first, *[second._replace(entry=1)] * 2])
    nodes = fake.held(recording.handle.launches_only, list)
    assert [node.at_once for node in nodes] == [True, False, False]
    assert [bool(node.early) for node in nodes] == [False, False, True]
    d.write(buffers["inputs"], np.ones(doubled.N, np.float32))
    d.run(recording)
    out = np.empty(doubled.N, np.float32)
    d.read(buffers["outputs"], out)
    assert (out == 4).all()


def test_kernels_that_do_not_wait_are_not_early(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of older artifacts. The pretended driver finds one that is early all the same."""
    d = available.device("cuda")
    make = doubled.doubling

    def without(*args: object) -> tuple:
        code, entries, launches = make(*args)  # type: ignore[arg-type]
        return code.replace(b"griddepcontrol.wait;", b" " * 20), entries, launches

    monkeypatch.setattr(doubled, "doubling", without)
    module, launches, _ = doubled.loaded(d, 2)
    assert not any(node.early for node in fake.held(d.record(module, launches).handle.launches_only, list))
    monkeypatch.setattr(cuda_calls, "waits", lambda image: True)
    with pytest.raises(AssertionError, match="starts early that never waits"):
        d.record(*doubled.loaded(d, 2)[:2])


# -- available devices -----------------------------------------------------------------------------


@pytest.mark.parametrize(("capability", "chip"), [
    ((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 7), "sm_86"), ((8, 9), "sm_89"),
    ((9, 0), "sm_90a"), ((10, 0), "sm_100"), ((12, 0), "sm_120")])
def test_the_chip_that_code_targets(capability: tuple[int, int], chip: str,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, capability=capability)
    assert registry.open_device("cuda", 0).info.chip == chip
    assert resolve("cuda").target == f"cuda:{chip}"
    test = next(c for c in CONTRACT if c.__name__ == "test_one_launch_by_itself")
    test("cuda")
    close(fake)


def test_a_device_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, capability=(6, 1))
    with pytest.raises(DeviceError, match=r"cuda:0 \(Pretended GPU\) is older than sm_75"):
        registry.open_device("cuda", 0)


def test_a_new_row_of_chips_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    made = install(monkeypatch, capability=(9, 5))
    assert cuda.BACKEND.devices()[0].chip == "sm_90"
    monkeypatch.setattr(chips, "CHIPS", (*chips.CHIPS, chips.Chip("cuda", "sm_95", "ampere", 95, isa="9.1")))
    result = cuda.BACKEND.devices()[0]
    assert result.chip == "sm_95" and result.runs[-1] == "sm_95" and resolve("cuda:0").target == "cuda:sm_95"
    monkeypatch.setattr(chips, "CHIPS", chips.CHIPS[-1:])
    install(monkeypatch, capability=(9, 0))
    with pytest.raises(DeviceError, match="is older than sm_95"):
        registry.open_device("cuda", 0)
    close(made)


def test_why_there_is_no_device(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = cuda.BACKEND
    assert backend.refusal() == "" and len(backend.devices()) == 1
    assert backend.devices()[0].driver == "CUDA 13.2, compute capability 9.0"
    fake.devices = 0
    assert backend.refusal() == "the driver has no device"
    for code in ("NO_DEVICE", "STUB_LIBRARY"):
        fake.fail["cuInit"] = code
        assert f"cuInit: CUDA_ERROR_{code} (the driver's words" in backend.refusal()
        assert backend.devices() == []
    for code in ("SYSTEM_DRIVER_MISMATCH", "UNKNOWN"):
        fake.fail["cuInit"] = code
        with pytest.warns(UserWarning, match=f"backend cuda is broken: .*CUDA_ERROR_{code}"):
            actual, why = registry.usable_devices("cuda")
        assert not actual and f"its driver is broken: cuda: cuInit: CUDA_ERROR_{code}" in why

    class Absent(RuntimeError):
        pass

    def absent(flags: int) -> None:
        raise Absent("cannot be found")

    fake.__dict__["cuInit"] = absent
    assert backend.refusal() == "NVIDIA's driver is not installed (Absent for libcuda)"

    def no_library() -> None:
        raise OSError("cannot open shared object file")

    monkeypatch.setattr(cuda_calls, "driver", no_library)
    assert backend.refusal() == f"NVIDIA's driver is not installed (no {cuda_calls.LIBRARY})"

    def missing() -> None:
        raise ModuleNotFoundError("no such module")

    monkeypatch.setattr(cuda_calls, "driver", missing)
    assert "pip install 'ztorch[cuda]'" in backend.refusal()
    with pytest.raises(DeviceError, match="there is no cuda device here: cuda-bindings is not"):
        registry.open_device("cuda")


def test_each_kernel_is_timed_where_the_device_is(fake: FakeCuda) -> None:
    """Measured times stand beside the prediction."""
    graph = digits_mlp.build().trace(4, optimizer="adam", loss=digits_mlp.LOSS).functions["predict"]
    place = resolve("cuda:0")
    predicted = predict_functions({"predict": graph}, target_for(place), gpu("H200"))["predict"]
    timed = measured(predicted, graph, "cuda:0")
    assert timed.measured_seconds is not None and timed.measured_seconds > 0
    assert all(k.measured_seconds is not None and k.measured_seconds >= 0 for k in timed.kernels)
    text = as_text("predict", "cuda:sm_90a", timed, 20)
    assert "predicted and measured" in text and "measured µs" in text
    assert timed.to_json()["kernels"][0]["measured_seconds"] == timed.kernels[0].measured_seconds
