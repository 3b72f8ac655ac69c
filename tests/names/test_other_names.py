"""Names of other libraries: the names in errors exist, and no name of ours is hidden."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from click.testing import CliRunner

import ztorch as zt
from ztorch import layers as L
from ztorch.cli import main
from ztorch.errors import ConfigError, UnknownName, unknown
from ztorch.layers import LAYERS, Layer
from ztorch.layers.activation import ACTIVATIONS
from ztorch.losses import Loss
from ztorch.metrics import Metric
from ztorch.names.other_names import OTHER_NAMES
from ztorch.optimizers import Optimizer
from ztorch.schedules import LearningRateSchedule

FAMILIES = {"layer": Layer, "loss": Loss, "metric": Metric, "optimizer": Optimizer,
            "learning-rate schedule": LearningRateSchedule}


@pytest.mark.parametrize("family", FAMILIES)
def test_suggested_names_exist(family: str) -> None:
    known = {name: kind for name, kind in FAMILIES[family].known.items()
             if kind.__module__.startswith("ztorch.")}  # without those of other tests
    for name, here in OTHER_NAMES[family].items():
        assert name not in {k.lower() for k in known}, "it is known"
        if here.startswith(("the callback", "zt.")):
            continue
        without_arguments = re.sub(r"\w+=[\w.]+", "", here.partition(", with")[0].partition(";")[0])
        suggested = re.findall(r"[A-Z]\w+|'\w+'", without_arguments)
        assert suggested
        for word in suggested:
            bare = word.strip("'")
            assert bare in (ACTIVATIONS if "Activation" in here and word != bare else known), here
        message = str(unknown(family, name.upper(), known))
        assert message.startswith(f"unknown {family} {name.upper()!r}; here it is {here}. Known: ")
    assert {*OTHER_NAMES} == {*FAMILIES, "device", "dtype", "argument", "command", "option"}


def test_dtypes_commands_and_arguments_of_others() -> None:
    for name, here in OTHER_NAMES["dtype"].items():
        for dtype in re.findall(r"'(\w+)'", here):
            assert dtype.startswith("mixed_") or zt.ops.cast([1], dtype).dtype == dtype
        with pytest.raises(UnknownName, match=f"unknown dtype {name!r}; here it is {re.escape(here)}. Known: "):
            L.Input((3,), dtype=name)
    for name, here in OTHER_NAMES["command"].items():
        assert name not in main.commands
        assert here[:2] == "--" or here.split()[0] in main.commands
    output = CliRunner().invoke(main, ["convert", "a.onnx"])
    assert output.exit_code == 2 and "there is no command 'convert'; here it is `ztorch export`" in output.output


def test_suggested_options_exist() -> None:
    known = {name for command in main.commands.values() for option in command.params
             for name in option.opts}
    for here in OTHER_NAMES["option"].values():
        assert {*re.findall(r"--[a-z]+", here)} <= known, here


@pytest.mark.parametrize(("call", "said"), [
    (lambda: L.Dropout(p=0.5), "unknown argument of Dropout 'p'; here it is rate."),
    (lambda: L.Conv2D(3, kernelsize=3), "unknown argument of Conv2D 'kernelsize'; did you mean 'kernel_size'?"),
    (lambda: L.Dense(3, bias=False), "unknown argument of Dense 'bias'; here it is use_bias."),
    (lambda: zt.optimizers.Adam(lr=0.1), "unknown argument of Adam 'lr'; here it is learning_rate."),
    (lambda: zt.Sequential([L.Dense(1)]).compile(loss="mse", lr=0.1),
     "compile 'lr'; here it is one of the optimizer: optimizer=zt.optimizers.Adam(learning_rate=0.001)."),
    (lambda: zt.set_default_device("h100"), "unknown device 'h100'; name the code that it runs: 'cuda:sm_90a'"),
    (lambda: zt.set_default_device("rtx4090"), "'cuda:sm_89'"),
    (lambda: zt.set_default_device("gpus"), "unknown device 'gpus'; here it is 'auto' for the best device")])
def test_hints_at_arguments_and_devices(call: Callable[[], object], said: str) -> None:
    with pytest.raises(UnknownName, match=re.escape(said)):
        call()
    with pytest.raises(ConfigError, match=r"^Dense needs units: Dense\(units\)$"):
        L.Dense(name="a", kernel_regularizer="l2", dtype="float32")  # type: ignore[call-arg]
    mine = type("Short", (L.Conv2D,), {"__init__": lambda self: L.Conv2D.__init__(self, 3)})
    with pytest.raises(ConfigError, match=r"^Conv2D needs kernel_size: Conv2D\(filters, kernel_size\)$"):
        mine()


@pytest.mark.parametrize(("module", "name", "said"), [
    (zt, "matmull", "did you mean 'zt.ops.matmul'?"), (zt, "load_weights", "here it is model.load_weights(path)"),
    (zt.utils, "image_dataset", "did you mean 'image_dataset_from_directory'?"),
    (zt.data, "read_csv", "here it is zt.data.csv(path"), (zt.data, "imagefolder", "did you mean 'image_folder'?"),
    (zt.onnx, "export", "here it is zt.onnx.save"), (zt, "GradientTape", "here it is self.gradients(loss, weights)"),
    (zt.Sequential([L.Input((2,)), L.Dense(2)]).compile("cpu"), "state_dict", "here it is get_weights()"),
    (L.Dense(2), "enable_lora", "here it is a frozen layer (trainable = False)"),
    (L.Dense(2), "parameters", "here it is weights"), (zt.utils, "clip_grad_norm_", "here it is global_clipnorm="),
    (L.Dense(2), "register_forward_hook", "here it is a model that also returns"), (zt, "Parameter", "zt.Variable"), (zt.Sequential([L.Dense(2)]), "eval", "here it is nothing")])
def test_hints_at_attributes(module: object, name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(said)):
        getattr(module, name)


def test_long_names_of_damaged_files_are_shortened() -> None:
    assert str(zt.errors.DataError(f"a.json holds {'[' * 5000}")) == f"a.json holds {'[' * 100}..."


def test_layers_requested_as_attributes() -> None:
    for name, here in (("LayerNorm", "LayerNormalization"), ("GELU", "Activation('gelu')")):
        with pytest.raises(AttributeError, match=re.escape(f"; here it is {here}. Known: ")) as caught:
            getattr(zt.layers, name)
        known = str(caught.value).partition("Known: ")[2].partition(" and ")[0].split(", ")
        assert len(known) == 8 and {*known} <= {*zt.layers.__all__} - {"LAYERS", "Layer", "Context"}
    assert "Dense" in LAYERS


@pytest.mark.parametrize(("module", "name", "here"), [
    (zt.metrics, "TopKAccuracy", "TopKCategoricalAccuracy for one-hot rows"), (zt.losses, "MSELoss", "'mse'"),
    (zt.optimizers, "RAdam", "Adam, with a warmup of the rate"), (zt.optimizers, "lr_scheduler", "zt.schedules"),
    (zt.schedules, "LambdaLR", "the callback zt.callbacks.LearningRateScheduler")])
def test_names_requested_from_modules(module: object, name: str, here: str) -> None:
    with pytest.raises(AttributeError, match=f"unknown .*{name}.*; here it is {here}"):
        getattr(module, name)
    assert not hasattr(module, "_hidden")


@pytest.mark.cheap
@pytest.mark.parametrize("count", [1, 2, 3])
def test_layers_of_pytorch_with_a_number_of_axes(count: int) -> None:
    for name, here in (("Dropout", f"SpatialDropout{count}D"), ("BatchNorm", "BatchNormalization"),
                       ("InstanceNorm", "GroupNormalization(groups=-1)")):
        assert OTHER_NAMES["layer"][f"{name}{count}d".lower()] == here


def test_schedules_named_for_those_of_pytorch_have_their_rates() -> None:
    torch = pytest.importorskip("torch")
    of, ours = torch.optim.lr_scheduler, zt.schedules
    for theirs, schedule in (
            (lambda o: of.StepLR(o, 3, 0.5), ours.ExponentialDecay(0.1, 3, 0.5, staircase=True)),
            (lambda o: of.ExponentialLR(o, 0.9), ours.ExponentialDecay(0.1, 1, 0.9)),
            (lambda o: of.CosineAnnealingLR(o, 10), ours.CosineDecay(0.1, 10)),
            (lambda o: of.CosineAnnealingWarmRestarts(o, 4), ours.CosineDecayRestarts(0.1, 4, 1.0)),
            (lambda o: of.PolynomialLR(o, 9), ours.PolynomialDecay(0.1, 9, 0.0)),
            (lambda o: of.MultiStepLR(o, [2, 5]), ours.PiecewiseConstantDecay([1, 4], [0.1, 0.01, 0.001]))):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
        rates = theirs(optimizer)
        for step in range(9):
            assert schedule(step) == pytest.approx(rates.get_last_lr()[0], rel=1e-5)
            optimizer.step()
            rates.step()
