"""PyTorch's operators on rare arguments: infinities, integers, tenths, empty tensors, a single image."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.interchange.onnx_files import evaluated
from ztorch.errors import Unsupported
from ztorch.graph.evaluate import evaluate

INF = float("inf")

# Functions of a tensor of shape (3, 4, 6, 6).
CASES: dict[str, Any] = {
    # 1 / 0.1 is 10 in float32, and 1 has nine whole tenths, as Python's 1 // 0.1 says
    "tenths": lambda t, f, x: [t.div(x.mul(10).round() / 10, 0.1, rounding_mode="floor"), x.mul(10).round() / 10 % 0.1],
    "quotients of infinity": lambda t, f, x: [t.div(x * INF, 2.0, rounding_mode="floor"), (x > 0).int() // -2],
    "sums of infinities": lambda t, f, x: [t.logaddexp(x * 0 + end, x * 0 + end) for end in (INF, -INF, 1.0)],
    "booleans in order": lambda t, f, x: [(x > 0) < (x > 1), (x > 0) >= (x < 1)],
    "integers between": lambda t, f, x: [x[:, 0, 0, :1].long() * 0 + line for line in (
        t.linspace(0, 10, 5, dtype=t.int64), t.linspace(-10, 10, 8, dtype=t.int32), t.logspace(0, 3, 4, dtype=t.int64))],
    "ends are exact": lambda t, f, x: (x[:, 0, 0, :1] * 0 + t.linspace(0.1, 0.7, 9))[:, -1:],
    "integers are numbers": lambda t, f, x: [t.isfinite((x * 5).int()) | (x > 0), t.isnan((x * 5).int()) | (x > 0),
                                             t.isinf((x * 5).int()) | (x > 0), t.nan_to_num((x * 5).int())],
    "largest of 16 bits": lambda t, f, x: [t.nan_to_num((x / 0).to(d)).float() for d in (t.float16, t.bfloat16)],
    "a threshold for NaN": lambda t, f, x: f.threshold(x / (x > 0), 0.1, 5.0),
    "sizes as they are": lambda t, f, x: t.broadcast_to(x[:, :1], (-1, 4, -1, -1)),
    "empty parts": lambda t, f, x: x + t.cat([t.zeros(0), t.zeros(0)]).sum(),
    "the axis of three": lambda t, f, x: t.cross(x[:, :3], x[:, 1:]),
    "angles of numbers": lambda t, f, x: [t.angle(x), t.angle((x * 3).int()), t.angle(x / (x > 0))],
    "a single image": lambda t, f, x: x[:, :2] + (
        f.conv2d(x[1], t.ones(2, 4, 3, 3), padding=1) + f.conv_transpose2d(x[1], t.ones(4, 2, 3, 3), padding=1)
        + f.conv1d(x[1, 0], t.ones(2, 6, 3), padding="same")[:, None]),
    "blocks of a single image": lambda t, f, x: [
        x[..., :2, :2] * 0 + f.max_pool2d(x[1], 3, return_indices=True)[1],
        x * 0 + f.fold(f.unfold(x[1], 2, stride=2), (6, 6), 2, stride=2),
        x[:, :1, :1, :1] + f.pixel_shuffle(x[1], 2), f.pixel_unshuffle(f.pixel_shuffle(x[None], 2), 2)[0]],
    "bytes with a sign and without": lambda t, f, x: [
        x.abs().mul(90).to(t.uint8) + x.mul(40).to(t.int8), x.abs().mul(90).to(t.uint8) > x.mul(40).to(t.int8)],
    "roots and angles of integers": lambda t, f, x: [t.rsqrt((x * 3).int().abs() + 1), t.rad2deg((x * 3).int())],
    "no running statistics": lambda t, f, x: f.batch_norm(x, None, None, t.ones(4) * 2, t.ones(4), training=True),
    "the norm of a weight": lambda t, f, x: [t._weight_norm(x, t.tensor(2.0), -1), t._weight_norm(x, x[:1, :1, :, :1], -2)],
    "norms that count": lambda t, f, x: t.linalg.vector_norm(x.round(), 0, dim=1),
    "a product alone": lambda t, f, x: t.baddbmm(x[:, 0] / 0, x[:, 1], x[:, 2], beta=0, alpha=0.5),
    "condition numbers": lambda t, f, x: [t.linalg.cond(x + 9 * t.eye(6), k) for k in (2, -2)],
    "quantiles in a list": lambda t, f, x: t.quantile(x, t.tensor([0.2, 0.7]), dim=2).permute(1, 0, 2, 3),
    "complex and whole": lambda t, f, x: [t.view_as_real((x * 5).int() + t.complex(x, x)),
                                          t.view_as_real((x * 5).int() * t.complex(x, x))],
    "complex padding": lambda t, f, x: [t.view_as_real(f.pad(t.complex(x, x + 1), (1, 2))),
                                        t.view_as_real(f.pad(t.complex(x, x + 1), (1, 2, 1, 1), mode="reflect"))],
    "targets that are integers": lambda t, f, x: [
        f.cosine_embedding_loss(x[:, :, 0, 0], x[:, :, 1, 0], t.tensor([1, -1, 1]), margin=0.2, reduction="none"),
        f.hinge_embedding_loss(x, (x > 0).int() * 2 - 1, reduction="none"), f.soft_margin_loss(
            x, (x > 0).int() * 2 - 1, reduction="none"), f.margin_ranking_loss(x, x * x, (x > 0).int() * 2 - 1, reduction="none")],
}


def exported(function: Any, path: Path, x: Any, **options: Any) -> Any:
    """The functions in one file."""
    import torch

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(torch, torch.nn.functional, x)

    torch.export.save(torch.export.export(Net().eval(), (x,), **options), path)
    return zt.torch_export.load(path)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "disabled", True)


def named(t: Any, f: Any, x: Any) -> list[tuple[str, Any]]:
    """The results of all cases with their names."""
    results = {name: case(t, f, x) for name, case in CASES.items()}
    return [(name, y) for name, result in results.items() for y in (result if isinstance(result, list) else [result])]


def test_numbers_are_those_of_torch(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(2)
    x = torch.randn(3, 4, 6, 6).clamp(-2, 2)
    graph = exported(lambda *args: [y for _, y in named(*args)], tmp_path / "all.pt2", x).trace(batch_size=3).functions["predict"]
    [leaf] = graph.leaves("input")
    actual = evaluate(list(graph.outputs.values()), {leaf: x.numpy()})
    for y, (name, expected) in zip(actual, named(torch, torch.nn.functional, x), strict=True):
        np.testing.assert_allclose(y, expected.numpy(), rtol=2e-4, atol=2e-5, err_msg=name)


def test_weights_that_are_left_out_have_the_dtype_of_the_input(tmp_path: Path) -> None:
    import torch

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = torch.nn.functional.group_norm(torch.nn.functional.rms_norm(x, (6,)), 2)
            return torch.nn.functional.layer_norm(y, (6,))

    x = torch.linspace(-1, 2, 24, dtype=torch.float64).reshape(1, 4, 6).sin()
    torch.export.save(torch.export.export(Net(), (x,)), tmp_path / "norms.pt2")
    y = evaluated(zt.torch_export.load_layer(tmp_path / "norms.pt2"), x.numpy())
    np.testing.assert_allclose(y, Net()(x).numpy(), rtol=1e-12)


def test_sizes_divide_as_in_python(tmp_path: Path) -> None:
    """-(-5 // 2) is 3: a quotient below zero is rounded down."""
    import torch

    model = exported(lambda t, f, x: x[:, :1, 0] * t.arange(-(-x.shape[1] // 2)), tmp_path / "half.pt2",
                     torch.ones(3, 5, 2), dynamic_shapes=({1: torch.export.Dim("time", min=3)},))
    [y] = model.trace(batch_size=3, sizes=7).functions["predict"].outputs.values()
    assert y.shape == (3, 4)


def test_numbers_that_would_be_wrong_are_refused(tmp_path: Path) -> None:
    import torch

    for function, message in ((lambda t, f, x: t.view_as_real(f.pad(t.complex(x, x), (1, 1), value=2.0)),
                               "complex numbers with a number other than 0"),
                              (lambda t, f, x: t.linalg.cond(x, 1), "the condition number of order 1")):
        with pytest.raises(Unsupported, match=message):
            exported(function, tmp_path / "wrong.pt2", torch.ones(3, 4, 4))
