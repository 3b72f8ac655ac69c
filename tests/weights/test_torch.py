"""PyTorch's weights in our layers and back: equal outputs, and errors that name the differences."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import references
from tests.weights.torch_cases import CASES, Case, predicted
from ztorch import layers as L
from ztorch.errors import ConfigError, Unsupported, WeightsError
from ztorch.files import safetensors
from ztorch.model.sequential import Sequential
from ztorch.weights import matching


def saved(path: Path, state: Any) -> Path:
    torch = references.torch()
    if path.suffix == ".safetensors":
        from safetensors.torch import save_file
        save_file({k: v.contiguous() for k, v in state.items()}, path)
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize(("ending", "named"), [(".pt", False), (".safetensors", True)])
def test_there_and_back(case: Case, ending: str, named: bool, tmp_path: Path) -> None:
    """.pt by order, under our names; safetensors by name. PyTorch loads the files that we write."""
    torch = references.torch()
    names = {"a/conv2d": "a"} if case is CASES["flattened frames"] and named else {}
    module, x = case.module(torch), case.rows()
    want = case.expected(torch, module, x)
    model = case.model(named)
    model.load_weights(saved(tmp_path / f"theirs{ending}", module.state_dict()), names,
                       case.flatten_from)
    np.testing.assert_allclose(predicted(model, x), want, rtol=1e-9, atol=1e-10)
    if not named:
        return
    model.save_weights(tmp_path / "ours.safetensors", "torch", names, case.flatten_from)
    from safetensors.torch import load_file
    for tensor in module.state_dict().values():
        tensor.zero_()
    module.load_state_dict(load_file(tmp_path / "ours.safetensors"))
    np.testing.assert_allclose(case.expected(torch, module, x), want, rtol=1e-12, atol=1e-13)


def test_transposed_features_of_flatten_are_restored(tmp_path: Path) -> None:
    """Images have their channels first in both; Flatten puts them last, as in Keras."""
    torch = references.torch()
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 2), torch.nn.Flatten(),
                                 torch.nn.Linear(3 * 5 * 4, 6)).double()
    model = Sequential([L.Input((2, 6, 5)), L.Conv2D(3, 2, data_format="channels_first"),
                        L.Flatten("channels_first"), L.Dense(6)])
    x = np.random.default_rng(0).normal(size=(3, 2, 6, 5))
    want = module(torch.tensor(x)).detach().numpy()
    model.load_weights(saved(tmp_path / "theirs.pt", module.state_dict()))
    np.testing.assert_allclose(predicted(model, x), want, rtol=1e-9, atol=1e-10)


def test_gates_of_a_gru_in_torchs_order(tmp_path: Path) -> None:
    """Ours: update, reset, new; PyTorch's: reset, update, new."""
    model = Sequential([L.Input((5, 3)), L.GRU(2, name="g")])
    model.save_weights(tmp_path / "ours.safetensors", "torch")
    update, reset, new = np.split(model.get_layer("g").get_weights()[0], 3, axis=1)
    _, rows = safetensors.read(tmp_path / "ours.safetensors")[0]["g.weight_ih_l0"]
    np.testing.assert_array_equal(rows, np.concatenate([reset, update, new], 1).T)


def test_an_lstm_of_two_layers_is_two_of_ours(tmp_path: Path) -> None:
    torch = references.torch()
    module = torch.nn.LSTM(3, 4, 2, batch_first=True).double()
    model = Sequential([L.Input((5, 3)), L.LSTM(4, return_sequences=True), L.LSTM(4)])
    x = np.random.default_rng(0).normal(size=(2, 5, 3))
    want = module(torch.tensor(x))[0][:, -1].detach().numpy()
    for ending in (".pt", ".safetensors"):
        model.load_weights(saved(tmp_path / f"w{ending}", module.state_dict()))
        np.testing.assert_allclose(predicted(model, x), want, rtol=1e-9, atol=1e-10)


def test_compiled_lenet_matches_torch(tmp_path: Path) -> None:
    torch = references.torch()
    nn = torch.nn
    torch.manual_seed(0)
    theirs = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                           nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                           nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 10))
    ours = Sequential([L.Input((28, 28, 1)), L.Conv2D(6, 5, padding="same", activation="relu"),
                       L.MaxPooling2D(2), L.Conv2D(16, 5, activation="relu"), L.MaxPooling2D(2),
                       L.Flatten(), L.Dense(120, activation="relu"), L.Dense(10)])
    x = np.random.default_rng(0).normal(size=(2, 28, 28, 1)).astype(np.float32)
    ours.load_weights(saved(tmp_path / "w.safetensors", theirs.state_dict()))
    want = theirs(torch.tensor(x.transpose(0, 3, 1, 2))).detach().numpy()
    np.testing.assert_allclose(ours.compile(batch_size=2).predict(x), want, atol=1e-5)


def test_checkpoints_wrappers_and_dtypes(tmp_path: Path) -> None:
    """A state dict inside a checkpoint, names of a wrapper, views of one storage, 16 bits."""
    torch = references.torch()
    whole = torch.arange(24, dtype=torch.bfloat16)
    state = {"module.0.weight": whole.view(4, 6)[:, 1:4].T, "module.0.bias": whole[3:6].half(),
             "module.1.weight": whole[::2][:3].reshape(1, 3).double()}
    torch.save({"epoch": 3, "lr": 1e-3, "best": None, "sizes": [torch.Size([2]), (1, True)],
                "dtype": torch.float16, "state_dict": state}, tmp_path / "w.pt")
    model = Sequential([L.Input((4,)), L.Dense(3), L.Dense(1, use_bias=False)])
    model.load_weights(tmp_path / "w.pt")
    for ours, theirs in zip(model.get_weights(), state.values(), strict=True):
        np.testing.assert_array_equal(ours.T, theirs.double().numpy())


def test_parameters_for_every_dtype_that_torch_saves(tmp_path: Path) -> None:
    torch = references.torch()
    model = Sequential([L.Input((4,)), L.Dense(3, use_bias=False)])
    for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64,
              torch.uint8, torch.uint16):
        tensor = torch.arange(12).reshape(3, 4).to(d)
        torch.save({"a.weight": tensor}, tmp_path / "w.pt")
        model.load_weights(tmp_path / "w.pt")
        np.testing.assert_array_equal(model.get_weights()[0], np.arange(12).reshape(3, 4).T)
    torch.save(torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.ones(3, 4))}).state_dict(),
               tmp_path / "w.pt")
    model.load_weights(tmp_path / "w.pt")
    assert model.get_weights()[0].min() == 1


# -- mismatches ----------------------------------------------------------------------------------


def two(first: int = 5) -> Sequential:
    return Sequential([L.Input((4,)), L.Dense(first, name="one"), L.Dense(3, name="two")])


def state(*sizes: int) -> dict[str, Any]:
    torch = references.torch()
    return torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in pairwise(sizes))).state_dict()


def test_a_table_shows_what_does_not_match(tmp_path: Path) -> None:
    file = saved(tmp_path / "w.pt", state(4, 6, 3, 2))
    with pytest.raises(WeightsError) as error:
        two().load_weights(file)
    lines = [line.strip() for line in str(error.value).splitlines()]
    assert lines[1:5] == [
        "theirs                      | ours",
        "0: weight (6, 4), bias (6,) | one: weight (5, 4), bias (5,)",
        "1: weight (3, 6), bias (3,) | two: weight (3, 5), bias (3,)",
        "2: weight (2, 3), bias (2,) | -"]


def test_nothing_changes_where_something_does_not_fit(tmp_path: Path) -> None:
    model = two()
    before = model.get_weights()
    with pytest.raises(WeightsError):
        model.load_weights(saved(tmp_path / "w.pt", state(4, 5, 2)))
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["w.pt", "w.weights.h5", "w.safetensors", "w.npz"])
def test_layers_that_do_not_fit_may_be_skipped(tmp_path: Path, name: str) -> None:
    model, source = two(), Sequential([L.Input((4,)), L.Dense(5, name="one"), L.Dense(2, name="two")], seed=1)
    before = model.get_weights()
    if name.endswith(".pt"):
        source.load_weights(saved(tmp_path / name, state(4, 5, 2)))
    else:
        source.save_weights(tmp_path / name)
    with pytest.warns(UserWarning, match="no weights for two/kernel, two/bias"):
        model.load_weights(tmp_path / name, skip_mismatch=True)
    for a, b in zip(model.get_weights(), [*source.get_weights()[:2], *before[2:]], strict=True):
        np.testing.assert_array_equal(a, b)


def test_safetensors_have_no_order_to_trust(tmp_path: Path) -> None:
    """Names that differ by more than numbers do not say which of two equal shapes is which."""
    torch = references.torch()
    module = torch.nn.ModuleDict({"second": torch.nn.Linear(4, 4), "first": torch.nn.Linear(4, 4)})
    model = Sequential([L.Input((4,)), L.Dense(4, name="one"), L.Dense(4, name="two")])
    file = saved(tmp_path / "w.safetensors", module.state_dict())
    with pytest.raises(WeightsError, match=r"first, second have the same shapes as one, two.*names"):
        model.load_weights(file)
    model.load_weights(file, names={"one": "first", "two": "second"})
    np.testing.assert_array_equal(model.get_weights()[2].T,
                                  module["second"].weight.detach().numpy())
    with pytest.raises(WeightsError, match=r"no layer with weights of that name; did you mean 'two'"):
        model.load_weights(file, names={"tvo": "second"})


def test_names_for_a_part_of_the_model(tmp_path: Path) -> None:
    model = Sequential([L.Input((4,)), Sequential([L.Dense(4, name="a"), L.Dense(4, name="b")],
                                                  name="encoder")])
    model.save_weights(tmp_path / "w.safetensors", "torch", names={"encoder": "net.0"})
    from safetensors.numpy import load_file
    assert sorted(load_file(tmp_path / "w.safetensors")) == [
        "net.0.a.bias", "net.0.a.weight", "net.0.b.bias", "net.0.b.weight"]


@pytest.mark.cheap
@pytest.mark.parametrize(("layer", "match"), [
    (lambda: L.GRU(4, reset_after=False), "reset_after=True"),
    (lambda: L.MultiHeadAttention(2, key_dim=5), "heads whose sizes do not add up"),
    (lambda: L.MultiHeadAttention(2, key_dim=3, value_dim=4), "heads whose sizes do not add up"),
    (lambda: L.PReLU(), "an alpha for each position"),
])
def test_what_torch_lacks(layer: Any, match: str, tmp_path: Path) -> None:
    model = Sequential([L.Input((5, 6)), layer()])
    with pytest.raises(Unsupported, match=match):
        model.save_weights(tmp_path / "w.safetensors", layout="torch")


def test_a_custom_layer_is_named(tmp_path: Path) -> None:
    class Scale(L.Layer):
        def build(self, input_shape: Any) -> None:
            self.factor = self.add_weight("factor", (), "ones")

        def call(self, x: Any, context: Any) -> Any:
            return x * context.read(self.factor)

    with pytest.raises(Unsupported, match=r"no module with the weights of Scale 'mine'"):
        Sequential([L.Input((5,)), Scale(name="mine")]).save_weights(
            tmp_path / "w.safetensors", layout="torch")


def test_paths_and_arguments_that_contradict(tmp_path: Path) -> None:
    for name, how in (("w.pt", {"layout": "torch"}), ("w.pth", {}), ("w.keras", {}),
                      ("w.safetensors", {"layout": "keras"}), ("w.h5", {"layout": "torch"}),
                      ("w.safetensors", {"layout": "onnx"}), ("w.safetensors", {"names": {"a": "b"}})):
        with pytest.raises(ConfigError):
            two().save_weights(tmp_path / name, **how)
    with pytest.raises(ConfigError, match="channels_first, channels_last"):
        two().load_weights(saved(tmp_path / "w.pt", state(4, 5, 3)), flatten_from="nchw")
    with pytest.raises(ConfigError, match=r"names=3 must map layers to their names in the file"):
        two().load_weights(tmp_path / "w.pt", names=3)  # type: ignore[arg-type]
    assert [p.name for p in tmp_path.iterdir()] == ["w.pt"]


def test_names_that_several_modules_share_pair_nothing() -> None:
    def named(*names: str) -> Any:
        return SimpleNamespace(names=names)

    parts, modules = [named("a", "x"), named("b", "y")], [named("a", "y"), named("a", "x"), named("b", "z")]
    assert matching._by_names(parts, modules) == [[(parts[0], modules[1]), (parts[1], modules[0]), (None, modules[2])]]
