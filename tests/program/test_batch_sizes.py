"""Programs that are compiled for several batch sizes: results are those of the exact size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from models import tiny_gpt
from tests.cases.artifacts import changed
from tests.cases.available import device
from tests.cases.covering import one_in_each_run, pairs, share
from ztorch import layers as L
from ztorch.errors import ArtifactError, ConfigError, DataError
from ztorch.program.program import Program
from ztorch.runtime.buckets import Buckets

SIZES = (1, 8, 32)
TRAINED = {"optimizer": "sgd", "loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]}
MODELS = {
    "dense": lambda: [L.Input((37,)), L.Dense(53, activation="tanh"), L.LayerNormalization(),
                      L.Dense(5, activation="softmax")],
    "convolution": lambda: [L.Input((9, 9, 3)), L.Conv2D(8, 3, activation="relu"), L.MaxPool2D(2),
                            L.BatchNormalization(), L.Flatten(), L.Dense(5)],
    "attention": lambda: [L.Input((7, 8)), L.TransformerEncoder(16, 2),
                          L.GlobalAveragePooling1D(), L.Dense(5)],
}


def model(kind: str = "dense") -> zt.Sequential:
    return zt.Sequential(MODELS[kind](), name=kind, seed=3)


def data(rows: int, kind: str = "dense") -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(rows)
    x = random.normal(size=(rows, *model(kind).input_shape[1:])).astype(np.float32)
    return x, random.integers(0, 5, rows)


def compiled(batch_size: Any = SIZES, place: str = "cpu", **options: Any) -> Program:
    return model().compile(place, batch_size=batch_size, **options)


@pytest.mark.parametrize(("kind", "place"), pairs([*MODELS], ["cpu", "cpu:scalar"], [("convolution", "cpu")]))
def test_rows_have_the_bits_of_the_exact_size(kind: str, place: str) -> None:
    program = model(kind).compile(place, batch_size=SIZES)
    for rows in share((1, 2, 7, 8, 9, 31, 32), [*MODELS].index(kind), 2):
        x, _ = data(rows, kind)
        exact = model(kind).compile(place, batch_size=rows)
        np.testing.assert_array_equal(program.predict(x), exact.predict(x))


@pytest.mark.parametrize("name", one_in_each_run("webgpu", "vulkan", "opencl"))
def test_devices_choose_as_the_cpu_does(name: str) -> None:
    place = device(name).id
    program, exact = compiled(SIZES, place, **TRAINED), compiled(SIZES, **TRAINED)
    for rows in (1, 5, 41):
        x, y = data(rows)
        np.testing.assert_allclose(program.predict(x), exact.predict(x), rtol=0, atol=1e-5)
        losses = [p.fit(x, y, shuffle=False, verbose=0).history["loss"] for p in (program, exact)]
        np.testing.assert_allclose(*losses, rtol=1e-4)


def test_tensors_choose_as_arrays_do() -> None:
    program = compiled()
    x, _ = data(41)
    chosen = []
    bind = program.executable.bind_memory
    program.executable.bind_memory = lambda f: (chosen.append(f), bind(f))[1]  # type: ignore
    for rows in (41, 1):
        np.testing.assert_array_equal(program.predict(zt.tensor(x[:rows])).numpy(),
                                      program.predict(x[:rows]))
    assert chosen == ["predict", "predict@1"]


def test_more_rows_than_the_largest_bucket_use_several() -> None:
    program, exact = compiled(), compiled(75)
    x, _ = data(75)
    chosen = _names(program)
    np.testing.assert_array_equal(program.predict(x), exact.predict(x))
    assert chosen == ["predict", "predict", "predict"]
    chosen.clear()
    np.testing.assert_array_equal(program.predict(x[:41], batch_size=20), exact.predict(x[:41]))
    assert chosen == ["predict", "predict", "predict@1"]
    chosen.clear()
    parts = iter([x[:3], x[3:30], x[30:37]])
    np.testing.assert_array_equal(program.predict(parts), exact.predict(x[:37]))
    assert chosen == ["predict", "predict@8"]


def _names(program: Program) -> list[str]:
    """The functions that the program runs from now on."""
    names: list[str] = []
    bind = program.executable.bind

    def watched(function: str) -> Any:
        call = bind(function)
        run = call.run

        def noted() -> None:
            names.append(function)
            run()

        def steps(*arguments: Any) -> Any:
            native = in_a_row(*arguments)
            run_all = native.run

            def noted_all(*where: Any) -> int:
                count = run_all(*where)
                names.extend([function] * count)
                return int(count)

            native.run = noted_all
            return native

        in_a_row = call.steps
        call.run, call.steps = noted, steps  # type: ignore[method-assign]
        return call

    program.executable.bind = watched  # type: ignore[method-assign]
    return names


def test_functions_share_weights_kernels_and_arena() -> None:
    largest, several = compiled(32, **TRAINED), compiled(SIZES, **TRAINED)
    one, three = largest.executable.spec, several.executable.spec
    assert [f for f in three.functions if "@" not in f] == list(one.functions)
    assert set(three.functions) == {verb + size for verb in ("predict", "train", "evaluate")
                                    for size in ("", "@8", "@1")}
    assert three.states == one.states and three.arena_bytes == one.arena_bytes
    assert three.params_bytes - one.params_bytes < 4096  # constants of other shapes
    update = max((name for name, _ in three.functions["train"].kernels), key=lambda n: "sgd" in n)
    assert several.executable.code.count(update.rpartition("_")[0].encode()) < 9


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_twenty_steps_of_many_sizes_equal_pytorch(momentum: float) -> None:
    torch = pytest.importorskip("torch")

    program = compiled(SIZES, optimizer=zt.optimizers.SGD(0.01, momentum=momentum),
                       loss="sparse_categorical_crossentropy")
    weights = [torch.tensor(w, requires_grad=True) for w in program.get_weights()]
    steps = torch.optim.SGD(weights, 0.01, momentum=momentum)
    for k in range(20):
        x, y = data((1, 3, 8, 11, 32)[k % 5])
        first, first_bias, gamma, beta, last, last_bias = weights
        hidden = torch.tanh(torch.from_numpy(x) @ first + first_bias)
        hidden = torch.nn.functional.layer_norm(hidden, (53,), gamma, beta, 1e-3)
        loss = torch.nn.functional.cross_entropy(hidden @ last + last_bias, torch.from_numpy(y))
        steps.zero_grad()
        loss.backward()
        steps.step()
        assert program.train_on_batch(x, y) == pytest.approx(loss.item(), rel=2e-5)
    for ours, theirs in zip(program.get_weights(), weights, strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), atol=2e-5)


def test_fit_and_evaluate_count_real_rows_only() -> None:
    program, exact = compiled(SIZES, **TRAINED), compiled(39, **TRAINED)
    x, y = data(39)
    x[0] *= 30  # a row that is repeated would count
    weights = np.linspace(0.1, 2, 39)
    for sample_weight in (None, weights):
        ours = program.evaluate(x, y, sample_weight=sample_weight, verbose=0)
        theirs = exact.evaluate(x, y, sample_weight=sample_weight, verbose=0)
        assert ours == pytest.approx(theirs, rel=1e-6)
    sizes = _names(program)
    history = program.fit(x, y, epochs=2, shuffle=False, verbose=0)
    assert sizes == ["train", "train@8"] * 2
    again = compiled(SIZES, **TRAINED)
    losses = []
    for _ in range(2):
        parts = [again.train_on_batch(x[:32], y[:32]), again.train_on_batch(x[32:], y[32:])]
        losses.append((parts[0][0] * 32 + parts[1][0] * 7) / 39)  # type: ignore[index]
    assert history.history["loss"] == pytest.approx(losses, rel=1e-6)
    for ours, theirs in zip(program.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_fit_takes_any_batch_size_up_to_the_largest() -> None:
    program, exact = compiled(SIZES, **TRAINED), compiled(8, **TRAINED)
    x, y = data(40)
    ours = program.fit(x, y, batch_size=8, epochs=3, verbose=0).history["loss"]
    theirs = exact.fit(x, y, epochs=3, verbose=0).history["loss"]
    assert ours == theirs
    with pytest.raises(ConfigError, match=r"batch_size=64, but this program is compiled for up to "
                                          r"32 rows at a time; .*batch_size=\(1, 8, 32, 64\)"):
        program.fit(x, y, batch_size=64)


def test_an_artifact_stores_its_buckets(tmp_path: Path) -> None:
    program = compiled(SIZES, **TRAINED)
    x, y = data(43)
    program.fit(x, y, epochs=2, verbose=0)
    program.save(tmp_path / "sizes.zt")
    loaded = zt.load(tmp_path / "sizes.zt")
    assert loaded.metadata.axes == {"batch": SIZES} and loaded.batch_size == 32
    for rows in (1, 5, 43):
        np.testing.assert_array_equal(loaded.predict(x[:rows]), program.predict(x[:rows]))
    assert (loaded.fit(x, y, epochs=2, verbose=0).history["loss"]
            == program.fit(x, y, epochs=2, verbose=0).history["loss"])


@pytest.mark.parametrize(("axes", "message"), [
    ({"batch": [8, 1, 32]}, "axes is .*; it must be sizes in ascending order"),
    ({"batch": [1, 8]}, "axes.batch is .* it must be sizes for which there is a function 'predict'"
                        " of so many rows"),
    ({"batch": [1, 8, 16, 32]}, "axes.batch is .* it must be sizes for which there are functions"),
    ({"time": [1, 8, 32]}, "axes is .*, 'batch' first"),
    ({"batch": []}, "axes is .*; it must be sizes in ascending order"),
])
def test_an_artifact_with_other_buckets_is_refused(tmp_path: Path, axes: Any,
                                                   message: str) -> None:
    path = tmp_path / "sizes.zt"
    compiled(SIZES).save(path)
    path.write_bytes(changed(lambda m: m["program"].update(axes=axes), path.read_bytes()))
    with pytest.raises(ArtifactError, match=message):
        zt.load(path)


@pytest.mark.parametrize("sizes", [(), (8, 8), (0, 8), (8, 2.5), "8"])
def test_sizes_that_make_no_sense(sizes: Any) -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        compiled(sizes)


def test_more_rows_than_the_largest_size() -> None:
    program = compiled(SIZES, **TRAINED)
    x, y = data(33)
    with pytest.raises(DataError, match=r"33 rows.*batches of 32"):
        program.train_on_batch(x, y)
    with pytest.raises(DataError, match=r"axis 'batch' has size 33, and this program is compiled "
                                        r"for sizes up to 32 \(1, 8, 32\)"):
        program.buckets.function("predict", (33,))


def test_the_smallest_bucket_that_fits() -> None:
    buckets = Buckets({"batch": (1, 8, 32), "time": (64, 128)})
    assert len(buckets) == 6 and next(iter(buckets)) == (32, 128)
    for sizes, name in (((1, 1), "predict@1x64"), ((1, 65), "predict@1x128"),
                        ((2, 64), "predict@8x64"), ((9, 64), "predict@32x64"),
                        ((32, 128), "predict")):
        assert buckets.function("predict", sizes) == name
    with pytest.raises(DataError, match=r"axis 'time' has size 129.*\(64, 128\).*sizes=\{'time'"):
        buckets.function("predict", (1, 129))


@pytest.mark.parametrize("place", ["cpu", "cpu:scalar"])
def test_all_functions_read_weights_that_are_packed_once(place: str) -> None:
    """Batches of each size, and generation of single numbers."""
    wide = zt.Sequential([L.Input((96,)), L.Dense(200, activation="relu"), L.Dense(130)], seed=4)
    program = wide.compile(place, batch_size=SIZES)
    weights = sum(w.nbytes for w in program.get_weights())
    assert program.executable.spec.params_bytes < 1.15 * weights  # panels are padded
    new = [w[::-1] * 2 for w in program.get_weights()]
    program.set_weights(new)
    for rows in (1, 8, 32):
        exact = wide.compile(place, batch_size=rows)
        exact.set_weights(new)
        x = np.random.default_rng(rows).normal(size=(rows, 96)).astype(np.float32)
        assert (program.predict(x) == exact.predict(x)).all()
    text = tiny_gpt.build(blocks=1, width=96, heads=2).compile(place, batch_size=1, decode=True)
    assert text.executable.spec.params_bytes < 1.15 * sum(w.nbytes for w in text.get_weights())
    text.set_weights([w * 2 for w in text.get_weights()])
    row = [1, 2, 3]
    for _ in range(9):
        row.append(int(text.predict(np.array([row + [0] * (32 - len(row))]))[0, len(row) - 1].argmax()))
    assert text.generate(row[:3], 9, temperature=0).tolist() == row[3:]
