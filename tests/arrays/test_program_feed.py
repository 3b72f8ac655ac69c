"""Programs that train and score on tensors: as on arrays, bit for bit, and rows stay on the device."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import device as opened
from tests.cases.covering import one_in_each_run
from ztorch import layers as L
from ztorch.backends.device import Device
from ztorch.errors import DataError, NonFiniteLoss, WeightsError

random = np.random.default_rng(0)
X = random.normal(size=(37, 6)).astype(np.float32)
LABELS = random.integers(0, 3, 37)
WEIGHTS = random.uniform(0.5, 2, 37).astype(np.float32)


def places(first: str) -> Any:
    """The CPU, and one of the devices in each run, where feeding is the runtime's on the host: tests
    begin with different ones. In a full run, all."""
    rest = [n for n in ("opencl", "vulkan", "webgpu") if n != first]
    return pytest.mark.parametrize("device", ["cpu", *one_in_each_run(first, *rest)], indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """The targets that a program is compiled for."""
    name: str = request.param
    return name if name == "cpu" else opened(name).id


def classifier(device: str) -> Any:
    model = zt.Sequential([L.Input((6,)), L.Dense(8, activation="tanh"), L.Dense(3, activation="softmax")], seed=3)
    return model.compile(device, batch_size=8, optimizer="adam", loss="sparse_categorical_crossentropy",
                         metrics=["accuracy"])


def same_weights(a: Any, b: Any) -> None:
    for name, w in a.weights.items():
        np.testing.assert_array_equal(w, b.weights[name], name)


@places("vulkan")
def test_fit_and_evaluate_are_those_for_arrays(device: str) -> None:
    ours, theirs = classifier(device), classifier(device)
    x, y = zt.tensor(X, device=device), zt.tensor(LABELS.astype(np.int32), device=device)
    how = {"epochs": 3, "verbose": 0}
    for more, tensors in (({}, {}), ({"validation_split": 0.25, "class_weight": {0: 2.0, 2: 0.5}}, {}),
                          ({"shuffle": False, "sample_weight": WEIGHTS, "validation_data": (X[:9], LABELS[:9])},
                           {"validation_data": (x[:9], y[:9]), "sample_weight": zt.tensor(WEIGHTS, device=device)})):
        a = ours.fit(x, y, **how, **{**more, **tensors}).history
        b = theirs.fit(X, LABELS, **how, **more).history
        assert a == b
        same_weights(ours, theirs)
    assert ours.evaluate(x, y, verbose=0) == theirs.evaluate(X, LABELS, verbose=0)
    assert ours.evaluate(x, y, verbose=0, steps=2, return_dict=True) == theirs.evaluate(
        X, LABELS, verbose=0, steps=2, return_dict=True)


@places("webgpu")
def test_single_batches(device: str) -> None:
    ours, theirs = classifier(device), classifier(device)
    for rows, weights in ((8, None), (5, None), (3, WEIGHTS[:3])):
        x, y = zt.tensor(X[:rows], device=device), zt.tensor(LABELS[:rows].astype(np.int32), device=device)
        for call in ("train_on_batch", "test_on_batch"):
            got = getattr(ours, call)(x, y, sample_weight=weights)
            assert got == getattr(theirs, call)(X[:rows], LABELS[:rows], sample_weight=weights)
        same_weights(ours, theirs)
        got = ours.predict_on_batch(x)
        assert isinstance(got, zt.Tensor)
        np.testing.assert_array_equal(got.numpy(), theirs.predict_on_batch(X[:rows]))
    with pytest.raises(DataError, match="9 rows"):
        ours.train_on_batch(zt.tensor(X[:9], device=device), zt.zeros(9, dtype="int32", device=device))
    with pytest.raises(DataError, match="9 rows"):
        ours.predict_on_batch(zt.tensor(X[:9], device=device))


@places("vulkan")
def test_programs_of_several_batch_sizes(device: str) -> None:
    """The smallest size that holds the rows; padding does not change statistics."""
    def program() -> Any:
        model = zt.Sequential([L.Input((6,)), L.Dense(4), L.BatchNormalization(), L.Dense(3)], seed=3)
        return model.compile(device, batch_size=(2, 8, 16), optimizer="sgd", loss="mse")

    ours, theirs = program(), program()
    targets = X[:, :3] + 1
    x, y = zt.tensor(X, device=device), zt.tensor(targets, device=device)
    for size in (16, 5):
        how = {"epochs": 2, "verbose": 0, "batch_size": size}
        assert ours.fit(x, y, **how).history == theirs.fit(X, targets, **how).history
        same_weights(ours, theirs)
    assert ours.train_on_batch(x[:3], y[:3]) == theirs.train_on_batch(X[:3], targets[:3])
    assert ours.evaluate(x, y, verbose=0) == theirs.evaluate(X, targets, verbose=0)
    np.testing.assert_array_equal(ours.predict(x).numpy(), theirs.predict(X))
    same_weights(ours, theirs)


@pytest.mark.parametrize("device", ["opencl"], indirect=True)
def test_models_of_float64_score_as_on_arrays(device: str) -> None:
    """Weights of rows have the dtype that the program reads."""
    model = zt.Sequential([L.Input((6,)), L.Dense(3)], seed=3)
    program = model.compile(device, batch_size=8, loss="mse", dtype="float64")
    targets = X[:, :3] + 1
    want = program.evaluate(X, targets, sample_weight=WEIGHTS, verbose=0)
    assert want == program.evaluate(*(zt.tensor(a, dtype="float64", device=device) for a in (X, targets)),
                                    sample_weight=WEIGHTS, verbose=0)


@places("vulkan")
def test_sequences_of_several_sizes_on_a_device(device: str) -> None:
    """They go through the host, with the scores of arrays."""
    def program() -> Any:
        model = zt.Sequential([L.Input(("time", 2)), L.GRU(3), L.Dense(1)], seed=3)
        return model.compile(device, batch_size=4, sizes=(2, 4), optimizer="sgd", loss="mse")

    ours, theirs = program(), program()
    steps, targets = X[:, :6].reshape(37, 3, 2), X[:, :1]
    x, y = zt.tensor(steps, device=device), zt.tensor(targets, device=device)
    assert ours.fit(x, y, verbose=0).history == theirs.fit(steps, targets, verbose=0).history
    assert ours.train_on_batch(x[:3], y[:3]) == theirs.train_on_batch(steps[:3], targets[:3])
    same_weights(ours, theirs)


@places("opencl")
def test_wrong_data_have_the_errors_of_arrays(device: str) -> None:
    program = classifier(device)
    x, y = zt.tensor(X, device=device), zt.tensor(LABELS.astype(np.int32), device=device)
    bad = LABELS.astype(np.int32)
    bad[20] = 3
    for wrong, words in (((x, zt.tensor(bad, device=device)), "label 3 in row 20 of y is out of range"),
                         ((x, y[:30]), "37 rows but y has 30"), ((x[:, :5], y), "the model takes"),
                         ((x, y.astype("float32") * 0.5), "label 0.5"), ((x, None), "y is missing")):
        for call in (program.fit, program.evaluate, program.train_on_batch):
            with pytest.raises(DataError, match=words):
                call(*wrong)
    hole = X.copy()
    hole[4, 2] = np.nan
    with pytest.raises(NonFiniteLoss, match=r"row [0-9] of this batch of x is not finite"):
        program.fit(zt.tensor(hole, device=device), y, verbose=0)


@places("webgpu")
def test_only_numbers_of_rows_cross(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "cpu":
        pytest.skip("a CPU program reads the memory of tensors")
    program = classifier(device)
    large = np.repeat(X, 20, 0)
    x, y = zt.tensor(large, device=device), zt.tensor(np.repeat(LABELS, 20).astype(np.int32), device=device)
    program.fit(x, y, verbose=0)
    moved: list[int] = []
    for name in ("write", "read"):
        real = getattr(Device, name)
        monkeypatch.setattr(Device, name, lambda self, buffer, array, at=0, real=real: (
            moved.append(array.nbytes), real(self, buffer, array, at))[1])
    program.fit(x, y, verbose=0)
    assert moved and max(moved) <= 32 and sum(moved) < large.nbytes * 0.6  # a row has 24 bytes, its number 4


@places("opencl")
def test_regression_with_two_inputs_and_targets(device: str) -> None:
    def make() -> Any:
        a, b = L.Input((3,), name="a"), L.Input((2,), name="b")
        total = L.Concatenate()([a, b])
        model = zt.Model([a, b], {"p": L.Dense(1, name="p")(total), "q": L.Dense(2, name="q")(total)}, seed=1)
        return model.compile(device, batch_size=4, optimizer="sgd", loss={"p": "mse", "q": "mae"})

    ours, theirs = make(), make()
    x = {"a": X[:10, :3], "b": X[:10, 3:5]}
    y = {"p": X[:10, 5], "q": X[:10, :2]}
    tensors = [{k: zt.tensor(v, device=device) for k, v in part.items()} for part in (x, y)]
    assert ours.fit(*tensors, epochs=2, verbose=0).history == theirs.fit(x, y, epochs=2, verbose=0).history
    same_weights(ours, theirs)
    mixed = {"p": tensors[1]["p"], "q": y["q"]}  # an array beside a tensor goes there
    assert ours.evaluate(tensors[0], mixed, verbose=0) == theirs.evaluate(x, y, verbose=0)


@places("webgpu")
def test_weights_as_tensors(device: str) -> None:
    program = classifier(device)
    name = program.weight_names[0]
    before = program.get_weights()[0]
    w = program.weights[name]
    assert isinstance(w, zt.Tensor) and w.device == device and w.dtype.long == "float32"
    np.testing.assert_array_equal(w.numpy(), before)
    program.train_on_batch(X[:8], LABELS[:8])
    assert not np.array_equal(program.weights[name], before)
    np.testing.assert_array_equal(w.numpy(), before)  # a read is a snapshot
    program.weights[name] = w * 2.0
    np.testing.assert_array_equal(program.weights[name], before * 2)
    program.weights[name] = before  # an array
    np.testing.assert_array_equal(program.weights[name].numpy(), before)
    program.weights[name] *= 3.0
    np.testing.assert_array_equal(program.get_weights()[0], before * np.float32(3))
    assert list(program.weights) == program.weight_names and len(program.weights) == 4
    assert name in program.weights and "nothing" not in program.weights
    fresh = classifier(device)
    fresh.weights.update(program.weights)
    same_weights(fresh, program)
    with pytest.raises(WeightsError, match="has shape"):
        program.weights[name] = zt.zeros(3)
    with pytest.raises(TypeError, match="cannot be deleted"):
        del program.weights[name]
    with pytest.raises(KeyError, match="nothing"):
        program.weights["nothing"]
    with pytest.raises(KeyError, match="nothing"):
        program.weights["nothing"] = w
    np.testing.assert_array_equal(fresh.predict(X), program.predict(X))


def wide(**how: Any) -> Any:
    """A program whose kernel is lent in place."""
    model = zt.Sequential([L.Input((512,)), L.Dense(512, use_bias=False, name="wide")], seed=1)
    return model.compile("cpu", batch_size=2, **how)


def test_large_weights_on_the_cpu_are_read_in_place() -> None:
    program = wide(optimizer="sgd", loss="mse")
    first, x = program.get_weights()[0], np.ones((2, 512), np.float32)
    program.predict(x)  # calls that exist go on in the memory that the program moves to
    w = program.weights["wide/kernel"]
    assert np.may_share_memory(w.numpy(), program.executable.params)
    assert np.may_share_memory(program.weights["wide/kernel"].numpy(), w.numpy())
    array, twice = w.numpy(), w * 2.0  # recorded, and computed after the weight has changed
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0.0
    twin = wide(optimizer="sgd", loss="mse")  # nothing reads its weights
    for _ in range(2):
        assert program.train_on_batch(x, x) == twin.train_on_batch(x, x)
    assert not np.may_share_memory(array, program.executable.params)
    same_weights(program, twin)
    np.testing.assert_array_equal(program.predict(x), twin.predict(x))
    for got in (w.numpy(), array, twice.numpy() / 2):
        np.testing.assert_array_equal(got, first)

    before = program.weights["wide/kernel"]
    changed = before.numpy().copy()
    program.weights["wide/kernel"] = first
    np.testing.assert_array_equal(before.numpy(), changed)
    program.weights["wide/kernel"] = before  # a weight of its own
    np.testing.assert_array_equal(program.get_weights()[0], changed)
    before = program.weights["wide/kernel"].numpy()
    program.set_weights([first])
    np.testing.assert_array_equal(before, changed)
    del before, w, array, twice
    block = program.executable.params
    program.train_on_batch(x, x)
    assert program.executable.params is block  # nothing reads them: it stays


def test_a_tensor_of_a_weight_outlives_its_program() -> None:
    program = wide()
    first, w = program.get_weights()[0], program.weights["wide/kernel"]
    del program
    gc.collect()
    np.testing.assert_array_equal((w + 0.0).numpy(), first)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(w)).numpy(), first)
