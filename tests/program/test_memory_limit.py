"""Programs that compute parts of the forward pass again: smaller arenas, and the same bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import device
from ztorch import layers as L
from ztorch import ops
from ztorch.codegen.targets import TARGETS
from ztorch.commands.inspect import inspect
from ztorch.compile.pipeline import Compiled, compile_functions
from ztorch.dtypes import f32
from ztorch.errors import ConfigError, OutOfMemory
from ztorch.graph.op import leaf
from ztorch.graph.value import Graph
from ztorch.layers.layer import Layer
from ztorch.program.program import Program

TRAINED: Any = {"batch_size": 16, "optimizer": "adam", "loss": "sparse_categorical_crossentropy",
                "metrics": ["accuracy"]}
Wrap = Callable[[Layer], Layer]


def model(wrap: Wrap = lambda layer: layer) -> zt.Sequential:
    """Layers that remember, drop, normalize, and loop; each block is wrapped."""
    def block() -> zt.Sequential:
        return zt.Sequential([L.Dense(128, activation="gelu"), L.Dropout(0.2), L.Dense(8)],
                             name="block")

    return zt.Sequential([L.Input((12, 8)), wrap(block()), wrap(L.LSTM(24, return_sequences=True)),
                          L.Conv1D(16, 3, padding="same"), L.BatchNormalization(),
                          wrap(L.TransformerEncoder(32, 2, dropout=0.1, name="attention")),
                          L.GlobalAveragePooling1D(), L.Dense(5, activation="softmax")], seed=1)


def trained(program: Program) -> list[np.ndarray]:
    random = np.random.default_rng(2)
    x = random.normal(size=(40, 12, 8)).astype(np.float32)
    y = random.integers(0, 5, 40)
    history = program.fit(x, y, epochs=2, verbose=0).history
    return [np.array(history["loss"]), program.predict(x), *program.get_weights()]


@pytest.fixture(scope="module")
def plain() -> tuple[Program, list[np.ndarray]]:
    program = model().compile("cpu", **TRAINED)
    return program, trained(program)


def need_equal(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def arena(program: Program) -> int:
    return program.executable.spec.arena_bytes


def test_checkpoints_give_the_same_bits_in_a_smaller_arena(plain: Any) -> None:
    program = model(L.Checkpoint).compile("cpu", **TRAINED)
    assert program.weight_names == plain[0].weight_names
    assert arena(program) < 0.7 * arena(plain[0])
    again = " ".join(program.recomputed["train"])
    assert all(name in again for name in ("block_dense", "lstm", "attention"))
    for verb in ("predict", "evaluate"):
        ours, theirs = (p.executable.spec.functions[verb] for p in (program, plain[0]))
        assert ours.kernels == theirs.kernels
    need_equal(trained(program), plain[1])


PARTS = (0.85, 0.72)  # of the arena without a limit


@pytest.fixture(scope="module")
def limited(plain: Any) -> dict[float, Program]:
    return {part: model().compile("cpu", memory_limit=int(part * arena(plain[0])), **TRAINED)
            for part in PARTS}


@pytest.mark.parametrize("part", PARTS)
def test_a_limit_gives_the_same_bits(plain: Any, limited: Any, part: float) -> None:
    program = limited[part]
    assert arena(program) <= int(part * arena(plain[0]))
    assert program.recomputed["train"] and not program.recomputed["predict"]
    need_equal(trained(program), plain[1])


def test_less_memory_is_more_work(plain: Any, limited: Any) -> None:
    cycles = [p.executable.spec.functions["train"].cycles for p in (plain[0], *limited.values())]
    assert cycles[0] < cycles[1] < cycles[2] < 2 * cycles[0]


def test_a_limit_that_is_large_enough_changes_nothing(plain: Any, tmp_path: Path,
                                                      capsys: Any) -> None:
    program = model().compile("cpu", memory_limit="1 GiB", **TRAINED)
    assert not any(program.recomputed.values())
    theirs = plain[0].executable.spec.functions
    assert {n: f.kernels for n, f in program.executable.spec.functions.items()} == {
        n: f.kernels for n, f in theirs.items()}


def test_inspect_lists_kernels_that_run_again(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "model.zt"
    small = zt.Sequential([L.Input((4,)), L.Checkpoint(zt.Sequential(
        [L.Dense(64, activation="tanh"), L.Dense(4, activation="tanh")], name="wide")), L.Dense(1)])
    program = small.compile("cpu", batch_size=8, optimizer="sgd", loss="mse")
    program.save(path)
    inspect(str(path), as_json=False)
    printed = capsys.readouterr().out
    assert "Kernels of train that run again" in printed
    assert f"  {program.recomputed['train'][0]}\n" in printed
    loaded = zt.load(path)
    assert loaded.recomputed == program.recomputed


def test_a_limit_that_cannot_be_met_names_the_smallest_arena(plain: Any) -> None:
    with pytest.raises(OutOfMemory, match=r"memory_limit=1,000 bytes is too small for function "
                       r"'\w+': the smallest arena that recomputation reaches has [\d,]+ bytes, "
                       r"most of them for \w+.* of [\d,]+ bytes"):
        model().compile("cpu", memory_limit=1000, **TRAINED)


def smallest(compiled: Callable[..., Program]) -> int:
    """The limit that the error of one that is too small names."""
    with pytest.raises(OutOfMemory) as error:
        compiled(memory_limit=1000)
    named = re.search(r"smallest arena that recomputation reaches has ([\d,]+)", str(error.value))
    assert named
    return int(named[1].replace(",", ""))


def test_no_arena_is_smaller_than_the_one_named() -> None:
    """Regions of loops of 16-bit numbers take more if they run again, so the plain arena is named."""
    def compiled(**limit: int) -> Program:
        layers = [L.Input((33, 16)), L.LSTM(16, return_sequences=True), L.LSTM(16)]
        return zt.Sequential(layers, seed=3).compile("cpu", batch_size=8, loss="mse", optimizer="adam",
                                                     dtype="mixed_bfloat16", **limit)

    size = smallest(compiled)
    assert size <= arena(compiled()) and arena(compiled(memory_limit=size)) == size


def fitted(program: Program, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    program.fit(x, y, epochs=2, verbose=0)
    return [*program.get_weights(), program.predict(x)]


def test_a_limit_holds_for_what_is_derived_from_weights() -> None:
    """A product of weights is in the arena of the function that runs once, and in no other."""
    x, w = leaf("input", "x", (64,), f32), leaf("state", "w", (64, 64), f32)
    functions = {"predict": Graph({"y": x + ops.max(ops.matmul(w, ops.exp(w)), axis=1)})}

    def compiled(limit: int) -> Compiled:
        return compile_functions(functions, TARGETS["avx2"], "m", memory_limit=limit)

    fits = compiled(1 << 20)
    assert fits.plans["predict"].arena < 1 << 14 <= fits.spec.arena_bytes
    assert compiled(fits.spec.arena_bytes).spec == fits.spec
    with pytest.raises(OutOfMemory, match="too small for function 'prepare'"):
        compiled(1 << 14)


def test_recurrent_layers_run_again_by_segments() -> None:
    """23 steps, which no segments divide: masked, both ways, with dropout at a step."""
    def recurrent() -> zt.Sequential:
        return zt.Sequential([L.Input((23, 6)), L.Masking(), L.Bidirectional(
            L.LSTM(12, return_sequences=True, recurrent_dropout=0.2)), L.GRU(8, go_backwards=True),
            L.Dense(5, activation="softmax")], seed=1)

    options: Any = {"batch_size": 4, "optimizer": "sgd", "loss": TRAINED["loss"]}
    limit = smallest(partial(recurrent().compile, "cpu", **options))
    programs = [recurrent().compile("cpu", memory_limit=n, **options) for n in (None, limit)]
    assert arena(programs[1]) <= limit < 0.6 * arena(programs[0])
    assert any("lstm" in kernel for kernel in programs[1].recomputed["train"])
    random = np.random.default_rng(2)
    x, y = random.normal(size=(10, 23, 6)).astype(np.float32), random.integers(0, 5, 10)
    x[2:5, 9:] = 0
    need_equal(*(fitted(program, x, y) for program in programs))


def test_devices_run_segments_again_as_the_cpu_does() -> None:
    """Within rounding: products of fewer rows may add up in another order there."""
    def recurrent() -> zt.Sequential:
        return zt.Sequential([L.Input((13, 6)), L.GRU(8), L.Dense(2)], seed=1)

    place, options = device("vulkan").id, {"batch_size": 4, "optimizer": "sgd", "loss": "mse"}
    limit = smallest(partial(recurrent().compile, place, **options))
    programs = [recurrent().compile(place, memory_limit=n, **options) for n in (None, limit)]
    assert arena(programs[1]) <= limit < arena(programs[0])
    random = np.random.default_rng(2)
    x, y = random.normal(size=(4, 13, 6)).astype(np.float32), random.normal(size=(4, 2))
    for a, b in zip(*(fitted(program, x, y) for program in programs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("limit, fault", [("64 megabytes", "not a number of bytes"), (0, "positive"),
                                          ("0MB", "positive"), (1.5, "positive")])
def test_a_wrong_limit_is_named(limit: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=f"memory_limit.*{fault}"):
        model().compile("cpu", memory_limit=limit, **TRAINED)


@pytest.mark.parametrize("name", ["vulkan", "opencl"])
def test_devices_recompute_as_the_cpu_does(name: str) -> None:
    place = device(name).id
    random = np.random.default_rng(0)
    x, y = random.normal(size=(32, 6)), random.normal(size=(32, 3))
    options: Any = {"batch_size": 32, "optimizer": "sgd", "loss": "mse"}
    weights, limit = [], None
    for _ in range(2):
        small = zt.Sequential([L.Input((6,)), L.Dense(64, activation="tanh"),
                               L.BatchNormalization(), L.Dense(48, activation="gelu"), L.Dense(3)], seed=2)
        program = small.compile(place, memory_limit=limit, **options)
        program.fit(x, y, epochs=2, verbose=0)
        weights.append(program.get_weights())
        assert limit is None or arena(program) <= limit
        limit = int(0.85 * arena(program))
    need_equal(*weights)


def test_a_checkpoint_is_a_layer_like_the_one_inside() -> None:
    """Several inputs and outputs, states, masks and a config."""
    x = L.Input((5,), dtype="int32")
    embedded = L.Embedding(9, 4, mask_zero=True)(x)
    y, h, c = L.Checkpoint(L.LSTM(3, return_sequences=True, return_state=True))(embedded)
    last = L.Checkpoint(L.GRU(3))(y, initial_state=[h])
    wrapped = zt.Model(x, L.Checkpoint(L.Concatenate())([last, c]), seed=4)
    y, h, c = (unwrapped := L.LSTM(3, return_sequences=True, return_state=True))(embedded)
    bare = zt.Model(x, L.Concatenate()([L.GRU(3)(y, initial_state=[h]), c]), seed=4)
    assert [w.path for w in wrapped.weights] == [w.path for w in bare.weights]
    assert unwrapped.name == "lstm"
    ids = np.array([[1, 2, 0, 0, 0], [3, 4, 5, 6, 0]])
    again = zt.Model.from_json(wrapped.to_json())
    again.set_weights(wrapped.get_weights())
    want = bare.compile("cpu", batch_size=2).predict(ids)
    for other in (wrapped, again):
        np.testing.assert_array_equal(other.compile("cpu", batch_size=2).predict(ids), want)
    lines: list[str] = []
    wrapped.summary(print_fn=lines.append)
    assert "Checkpoint" not in "\n".join(lines)


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.weights.h5", "torch.safetensors"])
def test_files_do_not_depend_on_checkpoints(tmp_path: Path, name: str) -> None:
    def build(wrap: Wrap) -> zt.Sequential:
        return zt.Sequential([L.Input((4,)), wrap(L.Residual(L.Dense(4))),
                              wrap(L.Dense(3, name="named")), L.Dense(2)], seed=1)

    layout = "torch" if name.startswith("torch") else None
    wrapped, bare = build(L.Checkpoint), build(lambda layer: layer)
    bare.set_weights([w + 1 for w in bare.get_weights()])
    bare.save_weights(tmp_path / name, layout=layout)
    wrapped.load_weights(tmp_path / name)
    need_equal(wrapped.get_weights(), bare.get_weights())


def test_recurrent_blocks_store_only_the_values_that_are_read() -> None:
    def trained(wrap: bool) -> tuple[int, list[np.ndarray]]:
        layers = [L.LSTM(16, return_sequences=True) for _ in range(4)]
        model = zt.Sequential([L.Input((30, 16)), *(map(L.Checkpoint, layers) if wrap else layers), L.Dense(1)],
                              seed=1)
        program = model.compile("cpu", batch_size=4, optimizer="sgd", loss="mse")
        random = np.random.default_rng(2)
        program.fit(random.normal(size=(8, 30, 16)).astype(np.float32), np.ones((8, 30, 1), np.float32), epochs=2)
        return program.executable.spec.arena_bytes, program.get_weights()

    (plain, want), (less, got) = trained(wrap=False), trained(wrap=True)
    assert less < 0.75 * plain
    assert all((a == b).all() for a, b in zip(want, got, strict=True))
