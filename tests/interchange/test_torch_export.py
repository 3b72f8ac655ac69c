"""Programs of torch.export beside PyTorch."""

from __future__ import annotations

import json
import logging
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from ztorch.errors import ArtifactError, Unsupported, ZtorchError
from ztorch.graph.evaluate import evaluate
from ztorch.graph.value import Graph

torch: Any = None  # imported by the first test: it takes two seconds, and collection must be quick
BATCH = {0: "batch"}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch writes long records for whoever listens, and pytest does."""
    globals()["torch"] = pytest.importorskip("torch")
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "disabled", True)


def saved(net: Any, path: Path, *x: Any, axes: Any = BATCH, decomposed: bool = False) -> Path:
    """The file of a module."""
    sizes: dict[str, Any] = {}
    named = {k: sizes.setdefault(n, torch.export.Dim(n, min=2)) for k, n in axes.items()}
    program = torch.export.export(net.eval(), x, dynamic_shapes=tuple(
        named if axes is BATCH or v.ndim > 1 else None for v in x))
    torch.export.save(program.run_decompositions() if decomposed else program, path)
    return path


def cnn() -> Any:
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2),
                        nn.Conv2d(4, 4, 3, stride=2, groups=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                        nn.Flatten(), nn.Dropout(), nn.Linear(4, 3))
    net[1].running_mean.normal_()
    net[1].running_var.uniform_(0.5, 2)
    return net


def reader(recurrent: bool = True) -> Any:
    class Reader(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(20, 8)
            self.block = torch.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
            self.lstm = torch.nn.LSTM(8, 3, num_layers=2, bidirectional=True, batch_first=True)
            self.gru = torch.nn.GRU(6, 4, batch_first=True)
            self.short = torch.nn.LSTM(6, 5, proj_size=2, bidirectional=True, batch_first=True)
            self.cells = torch.nn.ModuleList((torch.nn.LSTMCell(6, 3), torch.nn.GRUCell(
                6, 3, bias=False), torch.nn.RNNCell(6, 3, nonlinearity="relu")))

        def forward(self, ids: Any) -> Any:
            x = self.block(self.table(ids) + torch.arange(ids.shape[1])[:, None] / 9)
            if not recurrent:
                return x, x[:, -1]
            steps, (_, cells) = self.lstm(x)
            h, cell = self.cells[0](steps[:, 0])
            for k in (1, 2):
                h = self.cells[k](steps[:, k], h)
            return (steps, self.gru(steps)[1][0], cells[-1], h, cell, self.short(steps)[0],
                    self.short(steps)[1][1][1])

    return Reader()


def near(found: Any, expected: Any, what: str = "") -> None:
    expected = expected.detach().numpy()
    assert found.shape == expected.shape, what
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5, err_msg=what)


def near_all(graph: Graph, x: Any, expected: Any) -> None:
    """Compares the outputs of a graph in their order."""
    [leaf] = graph.leaves("input")
    results = evaluate(list(graph.outputs.values()), {leaf: x.numpy()})
    for k, (actual, y) in enumerate(zip(results, expected, strict=True)):
        near(actual, y, f"output {k}")


@pytest.mark.parametrize("decomposed", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("part", range(3))
def test_operators(part: int, decomposed: bool, tmp_path: Path) -> None:
    from tests.interchange.torch_operators import FUNCTIONS, WHOLE

    functions = (FUNCTIONS if decomposed else [*FUNCTIONS, *WHOLE])[part::3]

    class All(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return [f(x) for f in functions]

    torch.manual_seed(1)
    x = torch.randn(3, 4, 6, 6).clamp(-2, 2)
    model = zt.torch_export.load(saved(All(), tmp_path / "all.pt2", x, decomposed=decomposed))
    near_all(model.trace(batch_size=3).functions["predict"], x, All()(x))


@pytest.mark.parametrize("decomposed", [False, True])
def test_an_image_model(decomposed: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, x = cnn(), torch.randn(3, 2, 12, 12)
    model = zt.load_model(saved(net, tmp_path / "cnn.pt2", x, decomposed=decomposed))
    program = model.compile("cpu", batch_size=4, optimizer="sgd", loss="mse", threads=1)
    near(program.predict(x.numpy()), net(x))
    weights = model.named_weights()
    assert {name for name, w in weights.items() if w.trains} == {
        f"graph/{name}" for name, _ in net.named_parameters()}
    assert not weights["graph/1.running_mean"].trains
    y = np.ones((3, 3), "f")
    first, last = (program.fit(x.numpy(), y, epochs=n, verbose=0).history["loss"][-1]
                   for n in (1, 5))
    assert last < first


@pytest.mark.parametrize("decomposed", [False, pytest.param(True, marks=pytest.mark.full)])
def test_texts_of_any_length(decomposed: bool, tmp_path: Path) -> None:
    """Attention and arithmetic of shapes; the length is an open axis."""
    torch.manual_seed(0)
    net, ids = reader(recurrent=False), torch.randint(0, 20, (3, 7))
    path = saved(net, tmp_path / "reader.pt2", ids, axes={0: "batch", 1: "time"},
                 decomposed=decomposed)
    model = zt.torch_export.load(path)
    assert model.axis_names == ["axis1"]
    program = model.compile("cpu", batch_size=3, sizes=(4, 8), threads=1)
    for length in (4, 6, 7):  # rows are filled up
        x = torch.randint(0, 20, (3, length))
        results = program.predict(x.numpy())
        for name, expected in zip(model.get_layer("graph").outputs, net(x), strict=True):
            near(results[name], expected, f"{name} of {length}")


def test_products_of_groups_of_rows(tmp_path: Path) -> None:
    """Experts of transformers, which calls an operator of its own where PyTorch's takes no
    float32; expert k has the rows up to its end."""
    @torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=(),
                             schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor")
    def own(x: Any, weight: Any, ends: Any) -> Any:
        return torch.cat([x[begin:end] @ w for begin, end, w in zip(
            [0, *ends.tolist()], ends.tolist(), weight, strict=False)])

    own.register_fake(lambda x, weight, ends: x.new_empty(x.shape[0], weight.shape[2]))

    class Experts(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            rows, weight = x.reshape(-1, 8), torch.arange(-96, 96).reshape(3, 8, 8) % 7 - 3.0
            ends = (x[:, 0, 0] > 1).cumsum(0, dtype=torch.int32) * 2 + torch.tensor([0, 1, 6])
            ends = torch.cat([ends[:2], torch.full((1,), 12)]).int()
            results = own(rows, weight, ends), torch._grouped_mm(
                rows.bfloat16(), weight.bfloat16(), offs=ends).float()
            return [y.reshape(x.shape) for y in results]

    torch.manual_seed(1)
    x = torch.randn(3, 4, 8).round()  # exact in bfloat16
    path = saved(Experts(), tmp_path / "experts.pt2", x, axes={})
    near_all(zt.torch_export.load(path).trace(batch_size=3).functions["predict"], x, Experts()(x))


@pytest.mark.parametrize("decomposed", [False, True])
def test_transforms_along_an_open_axis(decomposed: bool, tmp_path: Path) -> None:
    class Mixer(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return (torch.fft.fftn(x, dim=(1, 2)).real,
                    torch.fft.ifft(torch.complex(x, x + 1), n=x.shape[1] + 2, dim=1).imag)

    net = Mixer()
    path = saved(net, tmp_path / "mixer.pt2", torch.randn(3, 7, 4),
                 axes={0: "batch", 1: "time"}, decomposed=decomposed)
    model = zt.torch_export.load(path)
    for length in (5, 8):
        x = torch.randn(3, length, 4)
        near_all(model.trace(batch_size=3, sizes=length).functions["predict"], x, net(x))


def test_recurrent_layers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, ids = reader(), torch.randint(0, 20, (3, 5))
    model = zt.torch_export.load(saved(net, tmp_path / "reader.pt2", ids))
    near_all(model.trace(batch_size=3).functions["predict"], ids, net(ids))


def test_blocks_without_gradients(tmp_path: Path) -> None:
    """PyTorch's no_grad blocks have no gradient here; a step of training shows it."""
    class Blocks(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.dense = torch.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            y = self.dense(x)
            with torch.no_grad():
                z = y.cos() * 2
                z += 1
            with torch.autocast("cpu", enabled=False):
                z = z.sin() + y.detach()
            return z * y

    torch.manual_seed(0)
    net, x, y = Blocks(), torch.randn(4, 3), torch.ones(4, 3)
    model = zt.torch_export.load(saved(net, tmp_path / "blocks.pt2", x))
    program = model.compile("cpu", batch_size=4, optimizer=zt.optimizers.SGD(0.1), loss="mse",
                            threads=1)
    near(program.predict(x.numpy()), net(x))
    program.fit(x.numpy(), y.numpy(), epochs=1, verbose=0)
    ((net(x) - y) ** 2).mean().backward()
    near(program.weight_arrays()["graph/dense.weight"],
         net.dense.weight - 0.1 * net.dense.weight.grad)


def test_a_write_into_a_buffer_is_refused(tmp_path: Path) -> None:
    class Counts(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.count[1:] += 1
            return x + self.count

    with pytest.raises(Unsupported, match="writes into 'count', which would change the next prediction"):
        zt.load_model(saved(Counts(), tmp_path / "counts.pt2", torch.ones(2, 3)))


def test_what_is_not_read(tmp_path: Path) -> None:
    class Odd(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.lgamma(x) + torch.lgamma(x * 2).mode(1, keepdim=True)[0]

    x = torch.eye(3)[None].repeat(2, 1, 1)
    with pytest.raises(Unsupported) as caught:
        zt.load_model(saved(Odd(), tmp_path / "odd.pt2", x))
    message = str(caught.value)
    assert "3 of 5 calls cannot be imported" in message and "aten.mode.default" in message
    assert message.count("aten.lgamma") == 1, message
    path = saved(torch.nn.BatchNorm1d(3), tmp_path / "norm.pt2", torch.ones(2, 3))
    train = torch.export.export(torch.nn.BatchNorm1d(3), (torch.ones(2, 3),))
    torch.export.save(train, path)
    with pytest.raises(Unsupported, match=r"export module.eval\(\)"):
        zt.load_model(path)


def rewritten(path: Path, out: Path, changes: dict[str, Any]) -> Path:
    """The archive with some members changed."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            member = name.partition("/")[2]
            data = old.read(name)
            new.writestr(name, changes[member](data) if member in changes else data)
    return out


def test_damage(tmp_path: Path) -> None:
    """Files that are changed anywhere load, or raise an error that names them."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    path = saved(net, tmp_path / "mlp.pt2", torch.ones(2, 3))
    config, graph = "data/weights/model_weights_config.json", "models/model.json"
    for member, old, new, message in [
            (config, '"use_pickle": false', '"use_pickle": true', "is pickled"),
            (config, '"as_int": 4', '"as_int": 4000000', "is larger than its"),
            (config, '"as_int": 4', '"as_int": -4', "is larger than its|damaged"),
            (config, '"storage_offset": {"as_int": 0', '"storage_offset": {"as_int": -1', "is larger than its"),
            (graph, '"major": 8', '"major": 9', "version 9 of the schema"),
            (graph, "aten.linear.default", "aten.line", "aten.line"),
            ("byteorder", "little", "big", "byte order")]:
        bad = rewritten(path, tmp_path / "bad.pt2", {
            member: lambda data, old=old, new=new: data.decode().replace(old, new, 1).encode()})
        with pytest.raises((ArtifactError, Unsupported), match=message):
            zt.torch_export.load(bad)
    document = json.loads(zipfile.ZipFile(path).read("mlp/models/model.json"))
    random = np.random.default_rng(0)
    for turn in range(60):
        copy = json.loads(json.dumps(document))
        place, steps = copy, random.integers(2, 9)
        for step in range(steps):
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = keys[random.integers(len(keys))]
            if step == steps - 1 or not isinstance(place[key], (dict, list)):
                place[key] = [None, -1, "x", [], {}][turn % 5]
                break
            place = place[key]
        bad = rewritten(path, tmp_path / "bad.pt2",
                        {graph: lambda data, copy=copy: json.dumps(copy).encode()})
        try:
            zt.torch_export.load(bad)
        except ZtorchError as error:
            assert "bad.pt2" in str(error)
    for size in (0, 10, path.stat().st_size // 2, path.stat().st_size - 30):
        (tmp_path / "bad.pt2").write_bytes(path.read_bytes()[:size])
        with pytest.raises(ArtifactError, match=r"bad\.pt2"):
            zt.torch_export.load(tmp_path / "bad.pt2")
