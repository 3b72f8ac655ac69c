"""zt.load_torch: PyTorch modules in memory."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import ztorch as zt
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


def test_what_cannot_be_loaded() -> None:
    class Fixed(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any) -> Any:
            return a.reshape(3, -1)

    class Total(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any) -> Any:
            return a.sum()

    net = torch.nn.Linear(4, 2)
    for call, kind, message in (
            (lambda: zt.load_torch("net.pt"), ConfigError, r"takes a torch\.nn\.Module, not a str"),
            (lambda: zt.load_torch(net), ConfigError, r"needs an example of each input: zt\.load_torch\(net, x\)"),
            (lambda: zt.load_torch(net, 3.0), ConfigError, "an example has no axes"),
            (lambda: zt.load_torch(Fixed(), torch.ones(3, 4)), Unsupported, "cannot export Fixed for any batch size"),
            (lambda: zt.load_torch(Total(), torch.ones(3, 4)), Unsupported, r"module Total: the output 'sum_1' of"),
            (lambda: zt.load_model(net), ConfigError, r"not Linear\(.*\); zt\.load_torch\(module, x\) takes")):
        with pytest.raises(kind, match=message):
            call()
