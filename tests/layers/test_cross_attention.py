"""TransformerDecoder on two sequences, beside torch.nn.TransformerDecoderLayer; and attention whose
queries, keys and values come from several layers of a Model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests import references
from tests.cases.covering import pairs
from ztorch import layers as L
from ztorch.errors import ShapeError, Unsupported
from ztorch.model.model import Model
from ztorch.optimizers import Adam

random = np.random.default_rng(5)
X, MEMORY = random.normal(size=(3, 5, 8)), random.normal(size=(3, 7, 8))
MASKS = {  # every position sees something: PyTorch gives NaN where it sees nothing
    "decoder_padding_mask": np.arange(5) < np.array([[5], [3], [1]]),
    "encoder_padding_mask": np.arange(7) < np.array([[7], [4], [1]]),
    "encoder_attention_mask": (random.random((3, 5, 7)) < 0.6) | (np.arange(7) == 0)}


def model(width: int = 8, masks: tuple[str, ...] = (), **how: Any) -> Model:
    """Words that look at themselves and at a memory of this width."""
    inputs = {"words": L.Input((5, 8), name="words"), "memory": L.Input((7, width), name="memory"),
              **{name: L.Input(MASKS[name].shape[1:], dtype="bool", name=name) for name in masks}}
    decoder = L.TransformerDecoder(16, 2, name="block", **how)
    return Model(inputs, decoder(inputs["words"], inputs["memory"],
                                 **{name: inputs[name] for name in masks}), name="net")


def torch_block(first: bool, activation: str) -> Any:
    return references.torch().nn.TransformerDecoderLayer(
        8, 2, 16, 0.0, activation, 1e-5, batch_first=True, norm_first=first).double()


def in_torch(ours: Model, path: Path, first: bool, activation: str) -> Any:
    """Their block with our weights, by the file that `save_weights` writes for them."""
    from safetensors.torch import load_file
    ours.save_weights(path, layout="torch", names={"block": "net"})
    module = torch_block(first, activation)
    module.load_state_dict({name.removeprefix("net."): tensor
                            for name, tensor in load_file(path).items()})
    return module


ACTIVATIONS = {False: "relu", True: "gelu"}  # by whether the block normalizes first
FORMS = pytest.mark.parametrize(("first", "activation"), ACTIVATIONS.items(), ids=["post", "pre"])


@pytest.mark.slow
@FORMS
def test_training_is_pytorchs_by_every_gradient(first: bool, activation: str,
                                                tmp_path: Path) -> None:
    """One step of plain SGD moves each weight by its gradient; then Adam trains both on."""
    torch = references.torch()
    random = np.random.default_rng(1)
    ours = model(normalize_first=first, activation=activation)
    ours.set_weights([random.normal(0.2, 0.5, w.shape) for w in ours.weights])
    module = in_torch(ours, tmp_path / "w.safetensors", first, activation)
    target = random.normal(size=X.shape)
    x, memory, goal = (torch.tensor(a) for a in (X, MEMORY, target))
    later = torch.ones(5, 5).triu(1).bool()
    optimizers = ((zt.optimizers.SGD(1.0), torch.optim.SGD(module.parameters(), 1.0)),
                  (Adam(1e-3, epsilon=1e-12), torch.optim.Adam(module.parameters(), 1e-3,
                                                               eps=1e-12)))
    for (mine, theirs), steps in zip(optimizers, (1, 6), strict=True):
        program = ours.compile(batch_size=3, optimizer=mine, loss="mse", dtype="float64")
        for _ in range(steps):
            loss = torch.nn.functional.mse_loss(module(x, memory, later), goal)
            theirs.zero_grad()
            loss.backward()
            theirs.step()
            got = program.train_on_batch({"words": X, "memory": MEMORY}, target)
            assert got == pytest.approx(float(loss.detach()), rel=1e-8)
        ours.set_weights(program.get_weights())
        after = in_torch(ours, tmp_path / "trained.safetensors", first, activation)
        for (name, a), b in zip(after.named_parameters(), module.parameters(), strict=True):
            if steps > 1 and name.endswith("in_proj_bias"):  # keys' bias: rounding alone, for Adam
                a, b = a[[*range(8), *range(16, 24)]], b[[*range(8), *range(16, 24)]]
            np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-6, atol=1e-8, err_msg=name)


def test_gradients_reach_the_memory() -> None:
    """The first layer of an encoder learns through the decoder as finite differences say."""
    words, memory = L.Input((5, 8), name="words"), L.Input((7, 6), name="memory")
    kept = L.Dense(8, use_bias=False, name="kept")
    net = Model([words, memory], L.TransformerDecoder(16, 2, activation="tanh", name="block")(
        words, kept(memory)))
    program = net.compile(batch_size=3, optimizer=zt.optimizers.SGD(1.0), loss="mse",
                          dtype="float64")
    rows, goal = [X, MEMORY[:, :, :6]], random.normal(size=X.shape)
    start = program.get_weights()
    way, h = random.normal(size=start[0].shape), 1e-6
    assert net.weights[0].path == "kept/kernel"
    up, down = (program_loss(program, [start[0] + s * h * way, *start[1:]], rows, goal)
                for s in (1, -1))
    program.set_weights(start)
    program.train_on_batch(rows, goal)
    gradient = start[0] - program.get_weights()[0]
    assert (gradient * way).sum() == pytest.approx((up - down) / (2 * h), rel=1e-5)


def program_loss(program: Any, weights: list[np.ndarray], x: Any, y: Any) -> float:
    program.set_weights(weights)
    return program.evaluate(x, y, verbose=0)


@pytest.mark.parametrize(("masks", "first"), pairs(
    [*((name,) for name in MASKS), tuple(MASKS)], [*ACTIVATIONS]), ids=str)
def test_masks_are_pytorchs(masks: tuple[str, ...], first: bool, tmp_path: Path) -> None:
    torch, activation = references.torch(), ACTIVATIONS[first]
    ours = model(masks=masks, normalize_first=first, activation=activation)
    program = ours.compile(batch_size=3, dtype="float64")
    got = program.predict({"words": X, "memory": MEMORY, **{n: MASKS[n] for n in masks}})
    hidden = {name: torch.tensor(~MASKS[name]) if name in masks else None for name in MASKS}
    seen = hidden["encoder_attention_mask"]
    want = in_torch(ours, tmp_path / "w.safetensors", first, activation)(
        torch.tensor(X), torch.tensor(MEMORY), torch.ones(5, 5).triu(1).bool(),
        None if seen is None else seen.repeat_interleave(2, 0), hidden["decoder_padding_mask"],
        hidden["encoder_padding_mask"])
    np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-8, atol=1e-9)


def test_attention_to_padding_only_adds_nothing() -> None:
    """A defined result, without NaN: attention gives zeros, then its last bias."""
    ours = model(masks=("encoder_padding_mask",), normalize_first=True)
    program = ours.compile(batch_size=3)
    shown = {"words": X, "memory": MEMORY, "encoder_padding_mask": np.zeros((3, 7), bool)}
    want = program.predict({**shown, "memory": 1e4 * random.normal(size=MEMORY.shape)})
    np.testing.assert_array_equal(program.predict(shown), want)
    assert np.isfinite(want).all()


def test_weights_come_from_pytorchs_files(tmp_path: Path) -> None:
    """By order, from a file of several blocks of theirs."""
    torch = references.torch()
    theirs = torch.nn.TransformerDecoder(torch_block(False, "relu"), 2).double().eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, 0.1, 0.4)
    torch.save(theirs.state_dict(), tmp_path / "w.pt")
    words, memory = L.Input((5, 8)), L.Input((7, 8))
    y = L.TransformerDecoder(16, 2)(words, memory)
    ours = Model([words, memory], L.TransformerDecoder(16, 2)(y, encoder_sequence=memory))
    ours.load_weights(tmp_path / "w.pt")
    want = theirs(torch.tensor(X), torch.tensor(MEMORY), torch.ones(5, 5).triu(1).bool())
    got = ours.compile(batch_size=3, dtype="float64").predict([X, MEMORY])
    np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_weights_are_in_kerashubs_order() -> None:
    """As the attributes are set in the public source of its TransformerDecoder."""
    parts = list(dict.fromkeys(w.path.split("/")[1] for w in model(width=6).weights))
    assert parts == ["self_attention", "self_attention_norm", "cross_attention",
                     "cross_attention_norm", "intermediate", "output", "feedforward_norm"]
    shapes = {w.path: w.shape for w in model(width=6).weights}
    assert shapes["block/cross_attention/key/kernel"] == (6, 2, 4)
    assert shapes["block/cross_attention/query/kernel"] == (8, 2, 4)


def test_keras_files_store_it_as_kerashub_does(tmp_path: Path) -> None:
    import h5py
    ours = model()
    ours.save_weights(tmp_path / "w.weights.h5")
    with h5py.File(tmp_path / "w.weights.h5") as file:
        kernel = file["layers/transformer_decoder/_cross_attention_layer/key_dense/vars/0"][()]
        gamma = file["layers/transformer_decoder/_cross_attention_layer_norm/vars/0"][()]
    named = {w.path: w.value for w in ours.weights}
    np.testing.assert_array_equal(kernel, named["block/cross_attention/key/kernel"])
    np.testing.assert_array_equal(gamma, named["block/cross_attention_norm/gamma"])
    again = model()
    again.set_weights([w.value * 0 for w in again.weights])
    again.load_weights(tmp_path / "w.weights.h5")
    np.testing.assert_array_equal(again.get_weights()[9], ours.get_weights()[9])


def test_artifacts_configs_and_onnx_have_both_sequences(tmp_path: Path) -> None:
    ours = model(width=6, masks=("encoder_padding_mask",), normalize_first=True)
    program = ours.compile(batch_size=3)
    rows = {"words": X.astype("f"), "memory": MEMORY[:, :, :6].astype("f"),
            "encoder_padding_mask": MASKS["encoder_padding_mask"]}
    want = program.predict(rows)
    program.save(tmp_path / "net.zt")
    np.testing.assert_array_equal(zt.load(tmp_path / "net.zt").predict(rows), want)
    again = Model.from_json(ours.to_json())
    assert [w.path for w in again.weights] == [w.path for w in ours.weights]
    again.set_weights(ours.get_weights())
    np.testing.assert_array_equal(again.compile(batch_size=3).predict(rows), want)
    zt.onnx.save(ours, tmp_path / "net.onnx")
    import onnxruntime
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    [actual] = session.run(None, {f"x/{name}": array for name, array in rows.items()})
    np.testing.assert_allclose(actual, want, rtol=1e-4, atol=1e-5)


# -- calls that cannot be --------------------------------------------------------------------------


def test_a_second_sequence_is_never_optional() -> None:
    words, memory = L.Input((5, 8)), L.Input((7, 6))
    alone, both = L.TransformerDecoder(16, 2), L.TransformerDecoder(16, 2)
    alone(words)
    with pytest.raises(ShapeError, match=r"called with encoder_sequence, but without"):
        alone(words, memory)
    both(words, memory)
    with pytest.raises(ShapeError, match=r"called without encoder_sequence, but with "):
        both(words)
    assert len(alone.weights) == 16 and len(both.weights) == 26


def test_generating_by_steps_with_a_memory_is_refused() -> None:
    ids = L.Input((6,), dtype="int32")
    x = L.Embedding(11, 8)(ids)
    net = Model(ids, L.Dense(11, activation="softmax")(L.TransformerDecoder(16, 2)(x, x)))
    with pytest.raises(Unsupported, match=r"'transformer_decoder'.*it attends to a second sequence"):
        net.compile(batch_size=1, decode=True)


# -- attention in a Model ------------------------------------------------------------------------------


def test_keyword_arguments_equal_positional_ones() -> None:
    """Values, and keys, of other widths than the queries."""
    q, v, k = L.Input((5, 8), name="q"), L.Input((7, 6), name="v"), L.Input((7, 4), name="k")
    rows = [random.normal(size=(2, *one.shape[1:])) for one in (q, v, k)]
    results = []
    for call in (lambda mha: mha(q, v, k), lambda mha: mha(q, value=v, key=k)):
        net = Model([q, v, k], call(L.MultiHeadAttention(2, 3, name="mha")))
        results.append(net.compile(batch_size=2).predict(rows))
    np.testing.assert_array_equal(*results)


def test_keys_without_values_are_the_querys_own() -> None:
    q, k = L.Input((5, 8), name="q"), L.Input((5, 4), name="k")
    layer = L.MultiHeadAttention(2, 3, name="mha")
    layer(q, key=k)
    assert [w.shape for w in layer.weights[::2]] == [(8, 2, 3), (4, 2, 3), (8, 2, 3), (2, 3, 8)]
