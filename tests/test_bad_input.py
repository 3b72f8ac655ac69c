"""Bad input of every kind meets an error of its own that names the culprit and a fix, and leaves
nothing half done: no crash, no half-written file, a program that still works."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.grouping import together
from tests.cases.small_model import X, Y, compiled, model
from ztorch import callbacks as C
from ztorch import layers as L
from ztorch.errors import (
    ConfigError,
    DeviceError,
    ShapeError,
    UnknownName,
)
from ztorch.host import processor
from ztorch.optimizers import SGD, Adam
from ztorch.program.program import Program

NASTY = 'a"; drop\n'


@pytest.fixture(scope="module")
def program() -> Program:
    return compiled()


def row(*layers: L.Layer) -> zt.Sequential:
    """A model of a row of 6 numbers; building it finds the shapes."""
    made = zt.Sequential([L.Input((6,)), *layers])
    made.build()
    return made


def nested(depth: int, inner: L.Layer) -> zt.Sequential:
    """A model of models with the longest names that are allowed."""
    for k in range(depth):
        inner = zt.Sequential([inner], name=chr(97 + k) * 200)
    return row(inner)


DECLARED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: L.Dense(0), ConfigError, "units.*not 0"),
    (lambda: L.Dense(-3), ConfigError, "units.*not -3"),
    (lambda: L.Dense("10"), ConfigError, "units.*not '10'"),
    (lambda: L.Dense(3, activation="rleu"), UnknownName, "did you mean 'relu'"),
    (lambda: L.Dense(3, activaton="relu"), UnknownName, "Dense 'activaton'; did you mean 'activat"),
    (lambda: L.Dense(3, name=NASTY), ConfigError, "control character"),
    (lambda: L.Dense(3, name="x" * 201), ConfigError, "of a Dense has 201 characters"),
    (lambda: L.Dnse(3), AttributeError, "did you mean 'Dense'"),
    (lambda: L.Input((-1,)), ConfigError, "positive integer"),
    (lambda: row(L.Dense(3, kernel_initializer="zeroes")), UnknownName, "did you mean 'zeros'"),
    (lambda: row(L.Reshape(6)), ConfigError, "target_shape.*tuple.*not 6"),
    (lambda: row(L.Reshape("ab")), ConfigError, "target_shape.*not 'ab'"),
    (lambda: row(L.Reshape((4, 2))), ShapeError, "reshape.*6 elements"),
    (lambda: row(L.Permute(1)), ConfigError, "dims.*not 1"),
    (lambda: row(L.Softmax(axis="x")), ConfigError, "axis.*'x'"),
    (lambda: row(L.Softmax(axis=0)), ShapeError, "'softmax': axis 0 is out of range"),
    (lambda: row(L.LayerNormalization(axis="a")), ConfigError, "axis.*'a'"),
    (lambda: L.LayerNormalization(epsilon="a"), ConfigError, "epsilon.*above 0, not 'a'"),
    (lambda: L.Dropout(1.0), ConfigError, "below 1, not 1.0"),
    (lambda: L.Dropout(0.5, noise_shape=3), ConfigError, "noise_shape=3"),
    (lambda: L.LeakyReLU("a"), ConfigError, "negative_slope.*'a'"),
    (lambda: L.ReLU(max_value="a"), ConfigError, "max_value.*'a'"),
    (lambda: L.Rescaling(None), ConfigError, "scale.*None"),
    (lambda: zt.Sequential(L.Dense(3)), ConfigError, "takes a list of layers"),
    (lambda: zt.Sequential(L.Dense(3), L.Dense(2)), ConfigError, "takes a list of layers"),
    (lambda: zt.Sequential(5), ConfigError, "takes a list of layers, not 5"),
    (lambda: zt.Sequential([L.Dense]), ConfigError, "not the class Dense"),
    (lambda: model().fit(X, Y), ConfigError, "cannot train before it is compiled"),
    (lambda: zt.losses.Huber("a"), ConfigError, "delta.*'a'"),
    (lambda: Adam(lr=1e-3), UnknownName, "argument of Adam 'lr'.*learning_rate"),
    (lambda: SGD(momentun=0.9), UnknownName, "SGD 'momentun'; did you mean 'momentum'"),
    (lambda: Adam(-1), ConfigError, "at least 0, not -1"),
    (lambda: Adam(clipnorm=0), ConfigError, "clipnorm.*above 0"),
    (lambda: L.Dense(3, use_bias="False"), ConfigError, r"Dense\(use_bias=...\) .* not 'False'"),
    (lambda: SGD(nesterov="yes"), ConfigError, r"SGD\(nesterov=...\) must be True or False"),
    (lambda: nested(5, L.Dense(3, name="x" * 200)), ConfigError,
     "is nested in 5 others; with their names, its own has 1,205 characters, more than 900"),
    (lambda: nested(5, L.ReLU()), ConfigError, "layer 're_lu' is nested in 5 others.* has 1,010 char"),
    (lambda: nested(4, L.Dense(3, name="x" * 95)), ConfigError,
     "that of its weight 'kernel' has 906 characters"),
    (lambda: C.EarlyStopping(patience=-1), ConfigError, "patience.*not -1"),
    (lambda: C.EarlyStopping(5), ConfigError, "monitor=5"),
    (lambda: C.EarlyStopping(min_delta="a"), ConfigError, "min_delta.*'a'"),
    (lambda: C.ReduceLROnPlateau(factor="a"), ConfigError, "factor.*'a'"),
    (lambda: C.EarlyStopping(restore_best_weights="no"), ConfigError, "True or False, not 'no'"),
    (lambda: C.EarlyStopping(baseline="a"), ConfigError, "baseline.*'a'"),
    (lambda: C.EarlyStopping(start_from_epoch=0.5), ConfigError, r"start_from_epoch.*0\.5"),
    (lambda: C.ModelCheckpoint("x.ckpt", save_best_only=1), ConfigError, "save_best_only.*not 1"),
    (lambda: C.ModelCheckpoint("x.ckpt", save_weights_only=1), ConfigError, "save_weights_only.*not 1"),
    (lambda: C.CSVLogger("x.csv", append="a"), ConfigError, "append.*True or False, not 'a'"),
    (lambda: C.CSVLogger("x.csv", separator="ab"), ConfigError, "separator='ab'"),
    (lambda: C.LambdaCallback(on_epoch_end=5), ConfigError, "on_epoch_end=5"),
    (lambda: C.LearningRateScheduler(0.1), ConfigError, "schedule=.*a function, not 0.1"),
]


@together()
@pytest.mark.parametrize(("how", "kind", "message"), DECLARED, ids=[d[2] for d in DECLARED])
def test_declared(how: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        how()


COMPILED: list[tuple[dict[str, Any], type[Exception], str]] = [
    *(({"batch_size": b}, ConfigError, f"batch_size.*not {b!r}") for b in (0, -1, "32", 2.5)),
    *(({"threads": n}, ConfigError, f"threads.*not {n!r}") for n in (0, -1, "a", 2.5)),
    ({"seed": -1}, ConfigError, "seed.*not -1"),
    ({"dtype": "float33"}, UnknownName, "did you mean 'float32'"),
    ({"dtype": "int32"}, ConfigError, "models compute in 'float32', 'float64'"),
    ({"loss": "mean_squared_eror"}, UnknownName, "did you mean 'mean_squared_error'"),
    ({"loss": lambda a, b: 1}, ConfigError, "returned 1, not a tensor"),
    ({"loss": lambda a, b: np.exp(a - b)}, TypeError, "zt.ops instead of NumPy"),
    ({"loss": None}, ConfigError, "optimizer but no loss"),
    ({"decode": "no"}, ConfigError, "decode must be True, False, or the number of rows to generate at once, not 'no'"),
    ({"optimizer": "adma"}, UnknownName, "did you mean 'adam'"),
    ({"metrics": ["acuracy"]}, UnknownName, "did you mean 'accuracy'"),
    ({"metrics": 5}, ConfigError, "5 is not a valid metric"),
    ({"metrics": [lambda a, b: 5]}, ConfigError, "metric '<lambda>' returned 5"),
]


@pytest.mark.parametrize(("how", "kind", "message"), COMPILED, ids=[c[2] for c in COMPILED])
def test_compiled(how: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        compiled(**how)


@pytest.mark.parametrize(("device", "near"), [
    ("npu:0", r". Known: cpu.* and \d+ more$"), ("CPU", "did you mean 'cpu'"), ("cpu:", "did you mean 'cpu'"),
    ("cpu:avx1024", "did you mean 'cpu:avx512'"), ("auto:avx2", "did you mean 'cpu:avx2'"),
    ("cudda:0", "did you mean 'cuda'"), ("mps", "unknown device 'mps'; here it is 'metal'"),
    ("wasm", "unknown device 'wasm'"), ("adamm", "unknown optimizer 'adamm'; did you mean 'adam'"), (None, "unknown device 'None'. Known: .*auto")])
def test_devices(device: Any, near: str) -> None:
    with pytest.raises(UnknownName, match=near):
        model().compile(device)


def test_levels_that_other_machines_have() -> None:
    level = "neon" if processor.architecture() == "x86_64" else "avx2"
    made_for = "aarch64" if level == "neon" else "x86_64"
    with pytest.raises(DeviceError, match=(
            rf"^cpu:{level} does not run here \(for {made_for} processors, this one is "
            rf"{processor.architecture()}\); cpu:scalar.* do\. For another machine: ztorch export MODEL --device "
            rf"cpu:{level} -o FILE\.zt$")):
        model().compile(f"cpu:{level}")


@pytest.mark.parametrize("device", ["dummy:7", "opencl:99"])
def test_devices_that_are_not_here(device: str) -> None:
    with pytest.raises(DeviceError, match=f"there is no (device )?{device.split(':')[0]}"):
        model().compile(device)


def test_a_chip_is_no_device() -> None:
    with pytest.raises(DeviceError, match="names a chip, which can be exported for"):
        model().compile("cuda:sm_90")
    with pytest.raises(UnknownName, match="unknown target 'cuda:sm_95'; did you mean 'cuda:sm_"):
        model().compile("cuda:sm_95")


def test_numpy_scalars_are_numbers() -> None:
    program = compiled(batch_size=np.int64(4), optimizer=Adam(np.float32(1e-3)))
    assert program.batch_size == 4 and program.predict(X).shape == (20, 3)


HUGE = 10 ** 6


@pytest.mark.parametrize("how", [
    lambda: zt.Sequential([L.Input((HUGE,)), L.Dense(HUGE)]).compile(),
    lambda: zt.Sequential([L.Input((HUGE,)), L.Dense(HUGE)]).get_weights(),
    lambda: zt.Sequential([L.Input((HUGE ** 2,)), L.Dense(HUGE ** 2)]).compile(),
    lambda: zt.Sequential([L.Input((HUGE,)), L.Activation("relu")]).compile(batch_size=HUGE),
    lambda: zt.Sequential([L.Input((HUGE,)), L.RepeatVector(HUGE), L.Softmax()]).compile(),
], ids=["weights", "get_weights", "beyond 64 bits", "inputs", "arena"])
def test_impossible_sizes_are_refused_before_allocation(how: Any) -> None:
    with pytest.raises(DeviceError, match=r"needs .* GiB of memory; this machine has"):
        how()


@pytest.mark.parametrize("around", [
    lambda inner: zt.Sequential([inner]), lambda inner: L.Residual(inner),
    lambda inner: L.TimeDistributed(inner)], ids=["Sequential", "Residual", "TimeDistributed"])
def test_layers_in_layers_in_layers(around: Callable[[L.Layer], L.Layer]) -> None:
    inner: L.Layer = L.Dense(3)
    with pytest.raises(ConfigError, match=r"nest layers 65 levels deep; at most 64 .*one Sequential"):
        for _ in range(600):
            inner = around(inner)
    last = zt.Sequential()
    for _ in range(62):  # from outside inwards
        outer, last = last, zt.Sequential()
        outer.add(last)
    last.add(L.Dense(3))
    with pytest.raises(ConfigError, match="65 levels deep"):
        last.add(zt.Sequential([L.Dense(3)]))


def test_the_deepest_model_does_all() -> None:
    inner: L.Layer = L.Dense(3)
    for _ in range(62):
        inner = zt.Sequential([inner], name="s")
    made = zt.Sequential([L.Input((4,)), inner])
    again = copy.deepcopy(zt.Sequential.from_json(made.to_json()))
    program = again.compile("cpu:scalar", optimizer="adam", loss="mse")
    assert program.predict(X).shape == (20, 3) and len(again.traced_layers()) == 63


@pytest.mark.parametrize("depth", [70, 250, 2000])
def test_a_description_that_is_too_deep(depth: int) -> None:
    text = '{"class_name": "Dense", "config": {"units": 3}}'
    for _ in range(depth):
        text = f'{{"class_name": "Sequential", "config": {{"layers": [{text}]}}}}'
    with pytest.raises(ConfigError, match=r"nests? layers|does not describe"):
        zt.Sequential.from_json(text)


def test_the_longest_names_survive_an_artifact(tmp_path: Path) -> None:
    """An artifact lists parts of a weight under longer names than the weight's own."""
    made = nested(4, L.Dense(3, name="x" * 89))
    program = made.compile("cpu", optimizer="adam", loss="mse")
    assert max(map(len, program.weight_names)) == 900
    program.save(tmp_path / "long.zt")
    assert zt.load(tmp_path / "long.zt").weight_names == program.weight_names


def test_nothing_of_a_name_reaches_rendered_text() -> None:
    """Characters other than letters reach messages and manifests, and no rendered text."""
    nasty = 'a"; {{drop}} %s \\ é'
    made = zt.Sequential([L.Input((4,)), L.Dense(3, name=nasty)], name=nasty)
    program = made.compile("cpu", optimizer="adam", loss="mse")
    assert program.weight_names == [f"{nasty}/kernel", f"{nasty}/bias"]
    assert b'"; {{drop' not in bytes(program.executable.code)
    program.fit(X, X[:, :3], verbose=0)
