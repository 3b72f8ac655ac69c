"""Attention and transformer blocks: blocks against PyTorch, training, dropout, gradients, mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import references
from tests.layers.running import Traced, same
from tests.layers.torch_attention import attention_arrays, loaded
from ztorch import layers as L
from ztorch.errors import ShapeError
from ztorch.model.model import Model
from ztorch.model.sequential import Sequential
from ztorch.optimizers import Adam

random = np.random.default_rng(8)
X = random.normal(size=(3, 5, 8))


def block_arrays(weights: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """A block of ours as a torch.nn.TransformerEncoderLayer."""
    result = {f"self_attn.{n}": a
              for n, a in attention_arrays(weights, f"{prefix}/self_attention").items()}
    for ours, theirs in (("self_attention_norm", "norm1"), ("feedforward_norm", "norm2")):
        result[f"{theirs}.weight"] = weights[f"{prefix}/{ours}/gamma"]
        result[f"{theirs}.bias"] = weights[f"{prefix}/{ours}/beta"]
    for ours, theirs in (("intermediate", "linear1"), ("output", "linear2")):
        result[f"{theirs}.weight"] = weights[f"{prefix}/{ours}/kernel"].T
        result[f"{theirs}.bias"] = weights[f"{prefix}/{ours}/bias"]
    return result


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
    result = dict(zip(case.weights, got[2:], strict=True))
    for name, ours in block_arrays(result, "block").items():
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
    """Ids that follow a rule, two causal blocks, Adam: losses and weights are no farther from those of PyTorch in
    float64 than a few times PyTorch's own error."""
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
    # where PyTorch happens to be exact, and in float64: of numbers as large as the losses
    rounding = 16 * float(np.finfo(d).eps) * max(exact_losses)
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
