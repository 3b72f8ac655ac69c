"""Networks that PyTorch exported, by both of its exporters: the same outputs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.interchange.onnx_files import runtime, single, written
from ztorch.interchange.onnx import load

NETWORKS = ("lenet", "resnet", "mobilenet", "unet", "encoder", "lstm", "gru", "rnn", "autoencoder",
            "windows")


def exported(name: str, dynamo: bool, path: Path, dynamic: bool = True) -> tuple[Any, Any]:
    """A network of PyTorch's with random weights, written to a file, and its inputs."""
    references.torch()
    from tests.interchange import torch_networks

    assert {*NETWORKS} == {*torch_networks.NETWORKS}
    return torch_networks.exported(name, dynamo, path, dynamic)


# The newer exporter takes seconds a network: each run takes a network of each kind, a full run all.
DYNAMO = ("unet", "encoder", "gru", "windows")


@pytest.mark.parametrize(("name", "dynamo"), [
    *(pytest.param(n, False, id=f"{n}-torchscript") for n in NETWORKS),
    *(pytest.param(n, True, id=f"{n}-dynamo", marks=pytest.mark.slow if n in DYNAMO else pytest.mark.full)
      for n in NETWORKS)])
def test_an_exported_network(name: str, dynamo: bool, tmp_path: Path) -> None:
    torch = references.torch()
    net, x = exported(name, dynamo, tmp_path / "net.onnx")
    with torch.no_grad():
        expected = net(x).numpy()
    program = load(tmp_path / "net.onnx").compile("cpu", batch_size=2)
    actual = program.predict(x.numpy())
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-6)


def test_weights_have_their_names_and_train(tmp_path: Path) -> None:
    torch = references.torch()
    net, x = exported("lenet", False, tmp_path / "net.onnx")
    model = load(tmp_path / "net.onnx")
    names = {f"graph/{n}": p.detach().numpy() for n, p in net.named_parameters()}
    weights = model.named_weights()
    assert set(names) == set(weights)
    assert all(np.array_equal(weights[n].value, names[n]) and weights[n].trains for n in names)
    y = np.array([1, 0, 7], np.int32)
    program = model.compile("cpu", batch_size=3, loss="sparse_categorical_crossentropy",
                            optimizer=zt.optimizers.SGD(0.1))
    program.fit(x.numpy(), y, epochs=3, shuffle=False, verbose=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):  # dropout is off in the file
        optimizer.zero_grad()
        torch.nn.functional.nll_loss(torch.log(net(x)), torch.tensor(y, dtype=torch.long)).backward()
        optimizer.step()
    for (n, p), trained in zip(net.named_parameters(), program.get_weights(), strict=True):
        np.testing.assert_allclose(trained, p.detach().numpy(), rtol=1e-3, atol=1e-5, err_msg=n)


@pytest.mark.parametrize("name", NETWORKS)
def test_an_imported_network_trains(name: str, tmp_path: Path) -> None:
    """Losses of five steps of SGD in float64, without the compiler, are PyTorch's."""
    torch = references.torch()
    from torch.fx.experimental.optimization import fuse  # as exporters do with BatchNormalization

    net, x = exported(name, False, tmp_path / "net.onnx")
    if any(isinstance(module, torch.nn.BatchNorm2d) for module in net.modules()):
        net = fuse(net)
        rate = 0.01  # at 0.1 losses grow, and with them the last bits in which exporter and `fuse` differ
    else:
        rate = 0.1
    net, given = net.double().requires_grad_(), x.double() if x.is_floating_point() else x
    with torch.no_grad():
        y = net(given)
        y += torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    optimizer, theirs = torch.optim.SGD(net.parameters(), rate), []
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(given), y)
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    step = references.Run(load(tmp_path / "net.onnx").trace(
        len(x), zt.optimizers.SGD(rate), "mse", (), "float64").functions["train"])
    one = np.ones(len(x))
    ours = [float(step(x=x.numpy(), y=y.numpy(), w=one, real=one)["loss"]) for _ in theirs]
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert abs(theirs[-1] - theirs[0]) > 5e-4 * theirs[0]  # where a wrong gradient would show


@pytest.mark.parametrize("name", ["resnet", "mobilenet", "lenet"])
def test_a_network_in_training_mode(name: str, tmp_path: Path) -> None:
    """It drops, and takes the statistics of the batch, while it is fitted and only then."""
    torch = references.torch()
    from tests.interchange.torch_networks import NETWORKS as made_by

    make, shape = made_by[name]
    torch.manual_seed(0)
    net, x = make().train(), torch.randn(3, *shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (x,), tmp_path / "net.onnx", dynamo=False, input_names=["x"],
                          training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False,
                          dynamic_axes={"x": {0: "batch"}})
    net, x = net.double(), x.double()
    functions = load(tmp_path / "net.onnx").trace(3, zt.optimizers.SGD(0.1), "mse", (), "float64").functions
    predict = references.Run(functions["predict"])
    expected = net.eval()(x).detach()
    np.testing.assert_allclose(predict(x=x.numpy())["y"], expected.numpy(), rtol=1e-6)
    step, one, ours, theirs = references.Run(functions["train"]), np.ones(3), [], []
    y = expected + torch.randn(expected.shape)
    optimizer = torch.optim.SGD(net.train().parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
        ours.append(float(step(x=x.numpy(), y=y.numpy(), w=one, real=one)["loss"]))
    if name == "lenet":  # each draws its own numbers
        assert "random/step" in step.states and "random/step" not in predict.states
        return
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    means = {n: mean for n, mean in net.named_buffers() if n.endswith("running_mean")}
    for n, mean in means.items():
        np.testing.assert_allclose(step.values[f"graph/{n}"], mean.numpy(), rtol=1e-4, atol=1e-7)
    assert len(means) > 2


@pytest.mark.parametrize("name", ["lenet", "encoder", "gru"])
def test_an_imported_network_can_be_exported_everywhere(name: str, tmp_path: Path) -> None:
    """Into a summary, an artifact, and an ONNX file again."""
    torch = references.torch()
    net, x = exported(name, False, tmp_path / "net.onnx")
    with torch.no_grad():
        expected = net(x).numpy()
    model = load(tmp_path / "net.onnx")
    lines: list[str] = []
    model.summary(lines.append)
    assert any("graph" in line for line in lines)
    zt.onnx.save(model, tmp_path / "again.onnx")
    np.testing.assert_allclose(runtime(tmp_path / "again.onnx", x.numpy())[0], expected, rtol=1e-4,
                               atol=2e-6)
    model.compile("cpu", batch_size=3).save(tmp_path / "net.zt")
    np.testing.assert_allclose(zt.load(tmp_path / "net.zt").predict(x.numpy()), expected,
                               rtol=1e-4, atol=2e-6)


def test_statistics_do_not_train(tmp_path: Path) -> None:
    """They are in the file of a network that was exported for training."""
    x, four = np.zeros((2, 4), np.float32), np.ones(4, np.float32)
    path = written(single("BatchNormalization", [x], [four] * 4, {}, 18), tmp_path / "bn.onnx")
    assert [w.trains for w in load(path).weights] == [True, True, False, False]


@pytest.mark.parametrize("dynamo", [
    pytest.param(False, id="torchscript"), pytest.param(True, id="dynamo", marks=pytest.mark.slow)])
def test_a_file_for_one_batch_size(dynamo: bool, tmp_path: Path) -> None:
    torch = references.torch()
    net, x = exported("lstm", dynamo, tmp_path / "net.onnx", dynamic=False)
    model = load(tmp_path / "net.onnx")
    assert model.output_shape == (3, 3)
    with pytest.raises(zt.errors.ConfigError,
                       match=r"batches of 3, the first axis of '\w+', not 8: compile\(batch_size=3"):
        model.compile("cpu", batch_size=8)
    with torch.no_grad():
        expected = net(x).numpy()
    for asked in (3, None):  # the size of the file is the default
        actual = model.compile("cpu", batch_size=asked).predict(x.numpy())
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
