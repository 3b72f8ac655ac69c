"""zt.load_torch: PyTorch modules in memory."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.interchange.onnx_files import runtime
from ztorch.errors import ConfigError, Unsupported

torch: Any = None  # imported by the first test: it takes two seconds, and collection must be quick


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch writes long records for whoever listens, and pytest does."""
    globals()["torch"] = pytest.importorskip("torch")
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "disabled", True)


def network() -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.Dropout(), nn.Flatten(),
                         nn.Linear(4 * 64, 3))


def test_a_module_predicts_and_keeps_its_mode() -> None:
    net = network()
    net[3].eval()
    x = torch.randn(5, 2, 8, 8)
    model = zt.load_torch(net, torch.zeros(1, 2, 8, 8))
    assert net.training
    assert not net[3].training
    assert model.name == "Sequential"
    np.testing.assert_allclose(model.compile("cpu", batch_size=3).predict(x.numpy()),
                               net.eval()(x).detach(), rtol=1e-4, atol=1e-5)


def test_programs_of_torch_export_and_arrays() -> None:
    class Scores(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any, b: Any) -> Any:
            return a @ b.transpose(1, 2)

    a, b = np.ones((2, 3, 4), "f4"), np.arange(40, dtype="f4").reshape(2, 5, 4)
    model = zt.load_torch(Scores(), a, b, name="scores")
    assert model.name == "scores"
    want = a @ b.transpose(0, 2, 1)
    np.testing.assert_allclose(model.compile("cpu", batch_size=2).predict([a, b]), want)
    batch = torch.export.Dim("batch")
    program = torch.export.export(torch.nn.Linear(4, 2), (torch.ones(3, 4),), dynamic_shapes=({0: batch},))
    assert zt.load_torch(program).compile("cpu", batch_size=1).predict(a[0]).shape == (3, 2)


def test_parameters_without_gradients_are_frozen() -> None:
    """A frozen base and a head that trains: one step as PyTorch takes it."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    net[0].requires_grad_(False)
    x, y = torch.randn(3, 4), torch.randn(3, 2)
    model = zt.load_torch(net, x)
    program = model.compile("cpu", batch_size=3, optimizer=zt.optimizers.SGD(0.1), loss="mse")
    program.fit(x.numpy(), y.numpy(), epochs=1, verbose=0)
    torch.nn.functional.mse_loss(net(x), y).backward()
    torch.optim.SGD(net.parameters(), 0.1).step()
    for name, parameter in net.named_parameters():
        np.testing.assert_allclose(program.weights[f"graph/{name}"], parameter.detach(), rtol=1e-4, atol=1e-6)
        assert model.named_weights()[f"graph/{name}"].trainable is parameter.requires_grad


def test_zeros_of_each_row_are_written_for_any_batch(tmp_path: Path) -> None:
    """Exporters of recurrent layers write the first state as an array with the size of the batch."""
    class Last(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.RNN(2, 3)

        def forward(self, x: Any) -> Any:
            return self.cell(x.permute(1, 0, 2))[1].squeeze(0)

    net, x = Last(), torch.randn(4, 5, 2)
    zt.load_torch(net, x[:2]).export(tmp_path / "last.onnx")
    [y] = runtime(tmp_path / "last.onnx", x.numpy())
    np.testing.assert_allclose(y, net(x).detach(), rtol=1e-5, atol=1e-6)


def test_bags_of_rows_for_any_batch_size() -> None:
    net, rows = torch.nn.EmbeddingBag(10, 4, mode="max"), np.arange(12).reshape(3, 4) % 10
    model = zt.load_torch(net, rows[:2])
    np.testing.assert_array_equal(model.predict(rows), net(torch.as_tensor(rows)).detach())


def test_gradients_where_a_root_is_zero() -> None:
    """PyTorch's gradients of norms and deviations are 0 where those are 0."""
    class Roots(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor([[0.0, 0.0, 0.0], [2.0, 2.0, 2.0], [1.0, 2.0, 4.0]]))

        def forward(self, x: Any) -> Any:
            x = x + self.w
            return (x.norm(dim=-1) + x.norm(3, dim=-1) + x.std(-1) + torch.std_mean(x, -1)[0]
                    + torch.cdist(x, x).sum(-1))

    net, x = Roots(), np.zeros((2, 3, 3), "f4")
    want = net(torch.as_tensor(x))
    model = zt.load_torch(net, x)
    model.compile(zt.optimizers.SGD(1.0), "mse")
    y = want.detach().numpy() - 1
    before = net.w.detach().numpy().copy()
    ((want - torch.as_tensor(y)) ** 2).mean().backward()
    model.train_on_batch(x, y)
    np.testing.assert_allclose(before - model.get_weights()[0], net.w.grad, rtol=1e-4, atol=1e-5)


def test_a_module_that_fixes_its_batch_size() -> None:
    class Halves(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any) -> Any:
            return a.reshape(3, 2, -1).flip(1)

    a = np.arange(12, dtype="f4").reshape(3, 4)
    with pytest.warns(UserWarning, match="Halves takes batches of 3 only"):
        model = zt.load_torch(Halves(), a)
    np.testing.assert_array_equal(model.predict(a), a.reshape(3, 2, 2)[:, ::-1])


def test_a_layer_of_inputs_without_a_batch(tmp_path: Path) -> None:
    class MeanOfNeighbours(torch.nn.Module):  # type: ignore[misc, name-defined]
        """A layer of a graph network: the mean over the edges that end in each node."""

        def __init__(self) -> None:
            super().__init__()
            self.dense = torch.nn.Linear(6, 5)
            self.register_buffer("scale", torch.linspace(1, 2, 5))

        def forward(self, nodes: Any, senders: Any, receivers: Any) -> Any:
            h = self.dense(nodes) * self.scale
            sums = torch.zeros_like(h).index_add(0, receivers, h[senders])
            counts = torch.zeros(len(nodes)).index_add(0, receivers, torch.ones(len(senders)))
            return sums / counts.clamp(min=1)[:, None]

    rng = np.random.default_rng(0)
    arrays = (rng.normal(size=(10, 6)).astype("f4"), rng.integers(0, 10, 20), rng.integers(0, 10, 20))
    net, inputs = MeanOfNeighbours(), tuple(map(torch.as_tensor, arrays))
    exported = torch.export.export(net, inputs)
    with pytest.raises(Unsupported, match=r"10 for 'nodes' and 20 for 'senders', .*; "
                                          r"use zt\.torch_export\.load_layer\(path\), which"):
        zt.load_torch(exported)
    torch.export.save(exported, path := tmp_path / "net.pt2")
    layer = zt.torch_export.load_layer(path)
    want = net(*inputs)
    np.testing.assert_allclose(layer([zt.tensor(x) for x in arrays]).numpy(), want.detach(), rtol=1e-5, atol=1e-6)
    assert {w.name: w.trainable for w in layer.weights} == {
        "dense.weight": True, "dense.bias": True, "scale": False}


def test_what_cannot_be_loaded() -> None:
    class Branches(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any) -> Any:
            return a if a.sum() > 0 else -a

    class Total(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any) -> Any:
            return a.sum()

    net = torch.nn.Linear(4, 2)
    for call, kind, message in (
            (lambda: zt.load_torch("net.pt"), ConfigError, r"takes a torch\.nn\.Module, not a str"),
            (lambda: zt.load_torch(net), ConfigError, r"needs an example of each input: zt\.load_torch\(net, x\)"),
            (lambda: zt.load_torch(net, 3.0), ConfigError, "an example has no axes"),
            (lambda: zt.load_torch(net, (torch.ones(3, 4),)), ConfigError, r"is a tuple, .* zt\.load_torch\(net, a, b\)"),
            (lambda: zt.load_torch(Branches(), torch.ones(3, 4)), Unsupported, "cannot export Branches"),
            (lambda: zt.load_torch(Total(), torch.ones(3, 4)), Unsupported, r"module Total: the output 'sum_1' of"),
            (lambda: zt.load_model(net), ConfigError, r"not Linear\(.*\); zt\.load_torch\(module, x\) takes")):
        with pytest.raises(kind, match=message):
            call()
