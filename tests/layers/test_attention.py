"""Attention layers and transformer blocks against Keras and PyTorch, up to twenty training steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import references
from tests.layers.running import Traced, same
from ztorch import layers as L
from ztorch.errors import ConfigError, ShapeError
from ztorch.graph.autodiff import gradients
from ztorch.graph.evaluate import evaluate
from ztorch.graph.op import OPS, first_value, leaf
from ztorch.layers import Context, Layer, States
from ztorch.model.model import Model
from ztorch.model.sequential import Sequential
from ztorch.optimizers import Adam

random = np.random.default_rng(8)
X = random.normal(size=(3, 5, 8))


# -- Keras ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [
    {"num_heads": 2, "key_dim": 4},
    {"num_heads": 3, "key_dim": 2, "value_dim": 5, "use_bias": False},
    {"num_heads": 2, "key_dim": 3, "output_shape": 6},
], ids=lambda how: ",".join(how))
@pytest.mark.parametrize("causal", [False, True])
def test_names_shapes_first_values_and_results_are_keras(how: dict[str, Any], causal: bool) -> None:
    keras = references.keras()
    x = X.astype(np.float32)
    keras.utils.set_random_seed(0)
    theirs = keras.layers.MultiHeadAttention(**how, name="mha")
    theirs(x, x)
    case = Traced(L.MultiHeadAttention(**how, use_causal_mask=causal, name="mha"), x)
    assert [(w.path, tuple(w.shape)) for w in theirs.weights] == [
        (w.path, w.shape) for w in case.layer.weights]
    for ours, v in zip(case.layer.weights, theirs.weights, strict=True):
        limit = np.abs(keras.ops.convert_to_numpy(v)).max()  # of the same uniform distribution
        assert np.abs(ours.value).max() == pytest.approx(limit, rel=0.2)
    theirs.set_weights(list(case.weights.values()))
    want = keras.ops.convert_to_numpy(theirs(x, x, use_causal_mask=causal))
    np.testing.assert_allclose(case.oracle()[0], want, rtol=1e-4, atol=1e-5)


def test_several_inputs_as_in_keras() -> None:
    """Queries, keys and values of different widths and lengths, under a mask."""
    keras = references.keras()
    arrays = {n: random.normal(size=s).astype(np.float32)
              for n, s in (("q", (2, 5, 8)), ("v", (2, 7, 6)), ("k", (2, 7, 4)))}
    mask = random.random((2, 5, 7)) < 0.7
    mask[:, :, 2] = True
    layer = L.MultiHeadAttention(2, 3, name="mha")
    q, v, k = (leaf("input", n, a.shape, "float32") for n, a in arrays.items())
    m = leaf("input", "m", mask.shape, "bool")
    context = Context(states=States())
    y = layer.attend(q, v, k, m, context=context)
    theirs = keras.layers.MultiHeadAttention(2, 3, name="mha")
    theirs(query=arrays["q"], value=arrays["v"], key=arrays["k"])
    assert [(w.path, tuple(w.shape)) for w in theirs.weights] == [
        (w.path, w.shape) for w in layer.weights]
    theirs.set_weights([w.value for w in layer.weights])
    want = theirs(arrays["q"], arrays["v"], arrays["k"], attention_mask=mask)
    feeds = {q: arrays["q"], v: arrays["v"], k: arrays["k"], m: mask}
    [got] = evaluate([y], feeds, oracle=True)
    np.testing.assert_allclose(got, keras.ops.convert_to_numpy(want), rtol=1e-4, atol=1e-5)


# -- PyTorch -------------------------------------------------------------------------------------------


def attention_arrays(weights: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Keras' layout of attention as PyTorch's."""
    def rows(name: str) -> np.ndarray:
        kernel = weights[f"{prefix}/{name}/kernel"]
        return kernel.reshape(len(kernel), -1).T

    out = weights[f"{prefix}/attention_output/kernel"]
    names = ("query", "key", "value")
    return {"in_proj_weight": np.concatenate([rows(n) for n in names]),
            "in_proj_bias": np.concatenate([weights[f"{prefix}/{n}/bias"].reshape(-1)
                                            for n in names]),
            "out_proj.weight": out.reshape(-1, out.shape[-1]).T,
            "out_proj.bias": weights[f"{prefix}/attention_output/bias"]}


def block_arrays(weights: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """A block of ours as a torch.nn.TransformerEncoderLayer."""
    found = {f"self_attn.{n}": a
             for n, a in attention_arrays(weights, f"{prefix}/self_attention").items()}
    for ours, theirs in (("self_attention_norm", "norm1"), ("feedforward_norm", "norm2")):
        found[f"{theirs}.weight"] = weights[f"{prefix}/{ours}/gamma"]
        found[f"{theirs}.bias"] = weights[f"{prefix}/{ours}/beta"]
    for ours, theirs in (("intermediate", "linear1"), ("output", "linear2")):
        found[f"{theirs}.weight"] = weights[f"{prefix}/{ours}/kernel"].T
        found[f"{theirs}.bias"] = weights[f"{prefix}/{ours}/bias"]
    return found


def loaded(module: Any, arrays: dict[str, np.ndarray], d: str = "float64") -> Any:
    torch = references.torch()
    module = module.to(getattr(torch, d))
    module.load_state_dict({n: torch.tensor(np.ascontiguousarray(a)) for n, a in arrays.items()})
    return module


@pytest.mark.parametrize("causal", [False, True])
def test_attention_and_all_its_gradients_are_pytorchs(causal: bool) -> None:
    torch = references.torch()
    case = Traced(L.MultiHeadAttention(2, use_causal_mask=causal, name="mha"), X)
    module = loaded(torch.nn.MultiheadAttention(8, 2, batch_first=True),
                    attention_arrays(case.weights, "mha"))
    x = torch.tensor(X, requires_grad=True)
    hidden = torch.ones(5, 5).triu(1).bool() if causal else None
    y, _ = module(x, x, x, attn_mask=hidden)
    (y * torch.tensor(case.slope)).sum().backward()
    got = case.oracle()
    same(got[:2], [y, x.grad])
    found = dict(zip(case.weights, got[2:], strict=True))
    for name, want in attention_arrays(found, "mha").items():
        np.testing.assert_allclose(want, module.get_parameter(name).grad, rtol=1e-9, atol=1e-11)
    case.compiled_agrees()


BLOCKS = [pytest.param(kind, first, activation, id=f"{kind}-{'pre' if first else 'post'}")
          for kind, first, activation in (
              ("TransformerEncoder", False, "relu"), ("TransformerEncoder", True, "gelu"),
              ("TransformerDecoder", False, "gelu"), ("TransformerDecoder", True, "relu"))]


def torch_block(first: bool, activation: str, width: int = 8, inner: int = 16) -> Any:
    return references.torch().nn.TransformerEncoderLayer(
        width, 2, inner, 0.0, activation, 1e-5, batch_first=True, norm_first=first)


@pytest.mark.parametrize(("kind", "first", "activation"), BLOCKS)
def test_a_block_and_all_its_gradients_are_pytorchs(kind: str, first: bool,
                                                    activation: str) -> None:
    torch = references.torch()
    layer = getattr(L, kind)(16, 2, activation=activation, normalize_first=first, name="block")
    case = Traced(layer, X, training=True)
    module = loaded(torch_block(first, activation), block_arrays(case.weights, "block"))
    x = torch.tensor(X, requires_grad=True)
    hidden = torch.ones(5, 5).triu(1).bool() if kind == "TransformerDecoder" else None
    y = module(x, src_mask=hidden)
    (y * torch.tensor(case.slope)).sum().backward()
    got = case.oracle()
    same(got[:2], [y, x.grad], rtol=1e-8)
    found = dict(zip(case.weights, got[2:], strict=True))
    for name, ours in block_arrays(found, "block").items():
        np.testing.assert_allclose(ours, module.get_parameter(name).grad, rtol=1e-8, atol=1e-10)
    if first:
        case.compiled_agrees(terms=300)


@pytest.mark.parametrize("given", [("padding_mask",), ("attention_mask",),
                                   ("padding_mask", "attention_mask")], ids="+".join)
@pytest.mark.parametrize("kind", ["TransformerEncoder", "TransformerDecoder"])
def test_a_block_under_masks_is_pytorchs(kind: str, given: tuple[str, ...]) -> None:
    """Every position sees itself, for PyTorch gives NaN where it sees nothing."""
    torch = references.torch()
    masks = {"padding_mask": np.arange(5) < np.array([[5], [3], [1]]),
             "attention_mask": (random.random((3, 5, 5)) < 0.6) | np.eye(5, dtype=bool)}
    masks["padding_mask"][:, 0], masks["attention_mask"][:, :, 0] = True, True
    x = L.Input((5, 8), name="x")
    said = {name: L.Input(masks[name].shape[1:], dtype="bool", name=name) for name in given}
    of = "decoder_" if kind == "TransformerDecoder" else ""
    model = Model([x, *said.values()], getattr(L, kind)(16, 2, name="block")(
        x, **{f"{of}{name}": mask for name, mask in said.items()}))
    program = model.compile(batch_size=3, dtype="float64")
    got = program.predict({"x": X, **{name: masks[name] for name in given}})
    module = loaded(torch_block(False, "relu"), block_arrays(program.weight_arrays(), "block"))
    shown = np.ones((3, 5, 5), bool)
    if kind == "TransformerDecoder":
        shown &= np.tri(5, dtype=bool)
    if "attention_mask" in given:
        shown &= masks["attention_mask"]
    hidden = torch.tensor(~masks["padding_mask"]) if "padding_mask" in given else None
    want = module(torch.tensor(X), src_mask=torch.tensor(~shown).repeat_interleave(2, 0),
                  src_key_padding_mask=hidden)
    np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-8, atol=1e-10)


def test_masks_of_blocks_that_do_not_fit() -> None:
    x = L.Input((5, 8))
    with pytest.raises(ShapeError, match=r"padding_mask and inputs do not fit: \(4,\) and \(5, 8\)"):
        L.TransformerEncoder(16, 2)(x, padding_mask=L.Input((4,), dtype="bool"))
    with pytest.raises(ShapeError, match="mask does not fit the scores"):
        L.TransformerEncoder(16, 2)(x, attention_mask=L.Input((5, 4), dtype="bool"))
    with pytest.raises(ShapeError, match="mask must be bool, not float32"):
        L.TransformerEncoder(16, 2)(x, padding_mask=L.Input((5,)))


IDS, WIDTH, STEPS, RATE = 11, 16, 20, 3e-3


def in_torch(start: dict[str, np.ndarray], x: np.ndarray, d: str) -> tuple[list[float], dict[str, np.ndarray]]:
    """The model of the test below in PyTorch, from the same weights: losses, and weights by our names."""
    torch = references.torch()
    blocks = {name: loaded(torch_block(first, activation, WIDTH, 32), block_arrays(start, name), d)
              for name, first, activation in (("first", True, "gelu"), ("second", False, "relu"))}
    table, kernel, bias = (torch.tensor(start[n], dtype=getattr(torch, d), requires_grad=True)
                           for n in ("ids/embeddings", "next/kernel", "next/bias"))
    parameters = [table, kernel, bias, *(p for b in blocks.values() for p in b.parameters())]
    optimizer, losses = torch.optim.Adam(parameters, lr=RATE, eps=1e-30), []
    hidden = torch.ones(6, 6).triu(1).bool()
    for rows in torch.tensor(x, dtype=torch.int64):
        h = table[rows[:, :-1]]
        for block in blocks.values():
            h = block(h, src_mask=hidden)
        loss = torch.nn.functional.cross_entropy((h @ kernel + bias).reshape(-1, IDS),
                                                 rows[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    weights = {"embeddings": table, "kernel": kernel, "bias": bias,
               **{f"{name}.{n}": p for name, b in blocks.items() for n, p in b.named_parameters()}}
    return losses, {n: w.detach().numpy() for n, w in weights.items()}


@pytest.mark.parametrize(("device", "d"), [
    ("cpu", "float32"), pytest.param("cpu:scalar", "float32", marks=pytest.mark.full),
    pytest.param("cpu", "float64", marks=pytest.mark.slow)])
def test_twenty_training_steps_are_pytorchs(device: str, d: str) -> None:
    """Ids that follow a rule, two causal blocks, Adam: losses and weights are no farther from those
    of PyTorch in float64 than a few times what PyTorch's own are."""
    model = Sequential([
        L.Input((6,), dtype="int32"), L.Embedding(IDS, WIDTH, name="ids"),
        L.TransformerDecoder(32, 2, activation="gelu", normalize_first=True, name="first"),
        L.TransformerDecoder(32, 2, name="second"),
        L.Dense(IDS, activation="softmax", name="next")], seed=2)
    program = model.compile(device, batch_size=4, optimizer=Adam(RATE, epsilon=1e-30),
                            loss="sparse_categorical_crossentropy", dtype=d)
    x = random.integers(0, IDS, (STEPS, 4, 7)).astype(np.int32)
    for k in range(1, 7):
        x[..., k] = (x[..., k - 1] * 2 + 1) % IDS
    start = program.weight_arrays()
    losses = [program.train_on_batch(rows[:, :-1], rows[:, 1:]) for rows in x]
    exact_losses, exact = in_torch(start, x, "float64")
    their_losses, theirs = in_torch(start, x, d)
    rounding = 16 * float(np.finfo(d).eps)  # where PyTorch happens to be exact, and in float64
    allowed = 3 * np.abs(np.subtract(their_losses, exact_losses)).max() + rounding
    np.testing.assert_allclose(losses, exact_losses, rtol=0, atol=allowed)
    assert losses[-1] < losses[0] - 0.1  # there was something to learn

    last = program.weight_arrays()
    ours = {"embeddings": last["ids/embeddings"], "kernel": last["next/kernel"],
            "bias": last["next/bias"], **{f"{name}.{n}": a for name in ("first", "second")
                                          for n, a in block_arrays(last, name).items()}}
    assert ours.keys() == exact.keys()
    for name, want in exact.items():
        # The bias of keys changes no score, so its gradient is rounding alone, which Adam makes a step.
        seen = np.r_[:WIDTH, 2 * WIDTH:3 * WIDTH] if name.endswith("in_proj_bias") else np.s_[:]
        error, theirs_off = (np.abs(a[seen] - want[seen]).mean() for a in (ours[name], theirs[name]))
        assert error <= 3 * theirs_off + rounding, name


# -- what has no peer ------------------------------------------------------------------------------------


def test_rotary_attention_knows_distances_but_not_places() -> None:
    case = Traced(L.MultiHeadAttention(2, rotary=True), np.concatenate([X, X], axis=1))
    plain = Traced(L.MultiHeadAttention(2), np.concatenate([X, X], axis=1))
    [turned], [flat] = case.oracle()[:1], plain.oracle()[:1]
    np.testing.assert_allclose(flat[:, :5], flat[:, 5:])  # the same rows twice: nothing tells them
    assert np.abs(turned[:, :5] - turned[:, 5:]).max() > 1e-3
    case.compiled_agrees()


def test_a_frozen_block_trains_nothing() -> None:
    model = Sequential([L.Input((5, 8)), L.TransformerEncoder(16, 2, trainable=False), L.Dense(1)])
    assert [w.path for w in model.weights if w.trains] == ["dense/kernel", "dense/bias"]


def test_dropout_is_for_training_alone_and_repeats() -> None:
    layer = L.TransformerEncoder(16, 2, dropout=0.4)
    quiet, loud = Traced(layer, X), Traced(layer, X, training=True)
    graph = loud.graph
    feeds = {**loud.feeds, **{v: first_value(v) for v in graph.leaves("state")
                              if v not in loud.feeds}}
    first, second = (evaluate([loud.y], feeds, oracle=True)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - quiet.oracle()[0]).max() > 0.1
    streams = {v.attrs["stream"] for v in graph.nodes() if v.op.name == "random_bits"}
    assert len(streams) == 3  # weights of attention, and what each part adds


@pytest.mark.parametrize("scale", [1e4, 0.0])
def test_hard_inputs_give_finite_numbers(scale: float) -> None:
    for layer in (L.TransformerEncoder(16, 2), L.TransformerDecoder(16, 2, normalize_first=True)):
        case = Traced(layer, (X * scale).astype(np.float32), True, "float32")
        feeds = {v: np.asarray(a, v.dtype.numpy) for v, a in case.feeds.items()}
        assert all(np.isfinite(a).all() for a in evaluate(case.graph.roots, feeds))


def test_a_layer_gradient_is_the_finite_difference() -> None:
    layer = L.TransformerDecoder(16, 2, activation="silu", rotary=True)
    case = Traced(layer, X)
    loss = OPS.sum(case.y * case.y)
    for v, g in zip(case.wrt, evaluate(gradients(loss, case.wrt), case.feeds, oracle=True),
                    strict=True):
        way, h = random.normal(size=v.shape), 1e-5
        up, down = (evaluate([loss], {**case.feeds, v: case.feeds[v] + s * h * way},
                             oracle=True)[0] for s in (1, -1))
        np.testing.assert_allclose((g * way).sum(), (up - down) / (2 * h), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("layer", "message"), [
    (L.TransformerEncoder(16, 3), r"layer 'transformer_encoder': num_heads=3 does not divide the 8 "
                                  r"features.*divides 8"),
    (L.MultiHeadAttention(3), r"layer 'multi_head_attention': num_heads=3 does not divide the 8 "
                              r"features.*key_dim"),
])
def test_heads_that_do_not_divide_the_width(layer: Layer, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        Sequential([L.Input((5, 8)), layer]).build()


def test_other_mistakes_are_named() -> None:
    for layer in (L.TransformerDecoder(16, 2), L.MultiHeadAttention(2)):
        with pytest.raises(ShapeError, match=r"2 axes \(length, features\).*\(8,\)"):
            Sequential([L.Input((8,)), layer]).build()
    with pytest.raises(ConfigError, match=r"MultiHeadAttention\(key_dim=...\)"):
        L.MultiHeadAttention(2, key_dim=0)
    layer = L.MultiHeadAttention(2, name="mha")
    x, mask = leaf("input", "x", (3, 5, 8), "float32"), leaf("input", "m", (3, 5, 4), "bool")
    with pytest.raises(ShapeError, match=r"layer 'mha': the mask.*\(3, 1, 5, 4\) and \(3, 2, 5, 5\)"):
        layer.attend(x, x, attention_mask=mask)
    with pytest.raises(ShapeError, match=r"layer 'mha'.*\(3, 5, 4\) and \(8, 8\)"):
        layer(leaf("input", "x", (3, 5, 4), "float32"))


def test_heads_that_share_keys_and_values() -> None:
    """As if each had the same ones, with rotations of another wavelength."""
    cases = [Traced(L.MultiHeadAttention(4, 2, num_key_value_heads=shared, rotary=True,
                                         rotary_wavelength=50.0, name="mha"), X)
             for shared in (2, None)]
    few, all_heads = (case.context for case in cases)
    for ours, theirs in zip(cases[0].layer.weights, cases[1].layer.weights, strict=True):
        value = cases[0].feeds[few.read(ours)]
        shared = ours.shape != theirs.shape
        cases[1].feeds[all_heads.read(theirs)] = np.repeat(value, 2, -2) if shared else value
    assert cases[0].layer.weights[2].shape == (8, 2, 2)
    same(cases[0].oracle()[:1], cases[1].oracle()[:1])
    with pytest.raises(ConfigError, match=r"num_key_value_heads=3\) does not divide num_heads=4"):
        L.MultiHeadAttention(4, num_key_value_heads=3)


@pytest.mark.parametrize("layer", [
    L.MultiHeadAttention(2, 3, dropout=0.1, use_causal_mask=True),
    L.TransformerEncoder(16, 2, activation="gelu"), L.TransformerDecoder(16, 2, rotary=True)],
    ids=lambda v: v.name)
def test_configs_survive_json(layer: Layer) -> None:
    model = Sequential([L.Input((5, 8)), layer])
    model.build()
    again = Sequential.from_json(model.to_json())
    assert again.layers[0].get_config() == layer.get_config()
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
