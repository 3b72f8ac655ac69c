"""Generating: each step with its cache gives what the whole model gives, and draws are fair."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.covering import pairs
from ztorch import layers as L
from ztorch.errors import ConfigError, DataError, Unsupported, ZtorchError
from ztorch.files.safetensors import read
from ztorch.program.generate import Sampler, continue_sequence
from ztorch.program.program import Program

LENGTH, WORDS, WIDTH = 10, 7, 12


def model(*middle: L.Layer, last: Any = "softmax", **common: Any) -> zt.Sequential:
    """A model that predicts the next number at each position; `middle` are its layers."""
    return zt.Sequential([L.Input((LENGTH,), dtype="int32"), L.Embedding(WORDS, WIDTH), *middle,
                          L.Dense(WORDS, activation=last, kernel_initializer="he_normal")],
                         name="writer", seed=3, **common)


def decoder(**how: Any) -> L.Layer:
    return L.TransformerDecoder(20, 3, dropout=0.3, **how)


MODELS = {
    "post-norm": lambda: model(L.PositionEmbedding(initializer="normal"), decoder(), decoder()),
    "pre-norm": lambda: model(L.PositionEmbedding(20, initializer="normal"),
                              decoder(normalize_first=True, activation="gelu"),
                              L.LayerNormalization()),
    "sinusoidal": lambda: model(L.SinusoidalPosition(), decoder()),
    "rotary": lambda: model(L.TransformerDecoder(20, 2, rotary=True), decoder()),
    "no positions": lambda: model(L.ReLU()),
    "own blocks, logits": lambda: model(
        L.PositionEmbedding(), L.Residual(L.RMSNormalization(), L.MultiHeadAttention(
            2, key_dim=5, value_dim=3, use_causal_mask=True)), L.ReLU(), last=None),
}


@functools.cache  # generating leaves nothing behind: tests share what is compiled
def compiled(name: str, device: str = "cpu", dtype: str = "float32") -> Program:
    return MODELS[name]().compile(device, batch_size=2, decode=True, dtype=dtype)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True), dtype=np.float64)
    return e / e.sum(-1, keepdims=True)


USUAL = ("cpu", "float32")


@pytest.mark.parametrize(("name", "place"), pairs([*MODELS], [USUAL, ("cpu:scalar", "float32"), ("cpu", "float64")],
                                                  [(name, USUAL) for name in MODELS]), ids=lambda v: v if isinstance(v, str) else "-".join(v))
def test_step_by_step_is_all_at_once(name: str, place: tuple[str, str]) -> None:
    """At every position; the second row runs on the cache of the first."""
    device, dtype = place
    program = compiled(name, device, dtype)
    random = np.random.default_rng(0)
    call = program.executable.bind("decode")
    for _ in range(2):
        row = random.integers(0, WORDS, LENGTH).astype(np.int32)
        want = program.predict(row[None])[0]
        for position, token in enumerate(row):
            call.inputs["x"][...] = token
            if "position" in call.inputs:
                call.inputs["position"][...] = position
            call()
            got, expected = call.outputs["logits"][0], want[position]
            if "logits" not in name:
                got = softmax(got)
            np.testing.assert_allclose(got, expected, rtol=0,
                                       atol=1e-12 if dtype == "float64" else 3e-6)


def uncached(program: Program, prompt: list[int], length: int, sampler: Sampler) -> list[int]:
    """What generating means, with the whole row computed for each number."""
    window, made = prompt[-LENGTH:], []
    while len(made) < length:
        row = np.array([window + [0] * (LENGTH - len(window))])
        made.append(sampler(np.log(program.predict(row)[0, len(window) - 1])))
        if len(window) == LENGTH:
            window = window[-(LENGTH // 2):]
        window = [*window, made[-1]]
    return made


@pytest.mark.parametrize("how", [{"temperature": 0}, {"temperature": 0.7, "seed": 5},
                                 {"temperature": 1.5, "top_k": 3, "seed": 6}])
@pytest.mark.parametrize("prompt", [[4], [1, 2, 3, 4, 5], [k % WORDS for k in range(23)]])
def test_the_numbers_of_the_model_without_a_cache(how: dict[str, Any], prompt: list[int]) -> None:
    """Also past the end of the row, where the older half is forgotten, and again from the start."""
    program = compiled("pre-norm")
    want = uncached(program, prompt, 3 * LENGTH, Sampler(**how))
    assert list(program.generate(prompt, 3 * LENGTH, **how)) == want
    assert list(program.generate(prompt, 4, **how)) == want[:4]


def test_the_newer_half_is_read_again_where_the_cache_is_full() -> None:
    read: list[tuple[int, int]] = []

    def count_on(token: int, position: int) -> np.ndarray:
        read.append((token, position))
        return np.eye(9)[token + 1]

    written = continue_sequence([0, 1, 2, 3, 4], 3, 5, count_on, Sampler(temperature=0))
    assert list(written) == [5, 6, 7]
    assert read == [*((k, k) for k in range(5)), (3, 0), (4, 1), (5, 2), (6, 3)]


def test_it_gives_each_number_as_it_is_made() -> None:
    program = compiled("pre-norm")
    writing = program.generate([1, 2], 1_000_000_000)
    first = [next(writing), next(writing)]
    with pytest.raises(ConfigError, match="generating already"):
        next(program.generate([1], 3))
    writing.close()
    assert list(program.generate([1, 2], 2)) == first


@pytest.mark.slow
def test_what_is_drawn_is_drawn_by_its_probability() -> None:
    logits = np.array([0.3, -1.0, 2.0, 0.1, -3.0])
    count = 20_000

    def shares(**how: Any) -> np.ndarray:
        sampler = Sampler(seed=1, **how)
        return np.bincount([sampler(logits) for _ in range(count)], minlength=5) / count

    for temperature in (0.5, 1.0, 3.0):
        np.testing.assert_allclose(shares(temperature=temperature), softmax(logits / temperature),
                                   atol=0.012)  # about 3.4 deviations
    best = softmax(np.where(logits >= 0.3, logits, -np.inf))
    np.testing.assert_allclose(shares(top_k=2), best, atol=0.012)
    assert shares(top_k=1)[2] == shares(temperature=0)[2] == 1.0
    assert Sampler(temperature=0)(np.zeros(4)) == 0 and Sampler(top_k=9)(logits) in range(5)
    huge = Sampler(temperature=1e-3)(logits * 1e4)
    assert huge == 2


def test_seeds() -> None:
    program = compiled("pre-norm")
    texts = [tuple(program.generate([1], 30, seed=s)) for s in (0, 1, 0)]
    assert texts[0] == texts[2] != texts[1]


@pytest.mark.slow
def test_it_writes_what_it_has_learned() -> None:
    """A model that was trained to count goes on counting."""
    program = MODELS["pre-norm"]().compile(
        "cpu", batch_size=8, decode=True, loss="sparse_categorical_crossentropy",
        optimizer=zt.optimizers.Adam(0.01))
    rows = (np.arange(LENGTH + 1) + np.arange(56)[:, None]) % WORDS  # each is the one before plus 1
    program.fit(rows[:, :-1], rows[:, 1:], epochs=30, verbose=0)
    assert list(program.generate([5], 8, temperature=0)) == [6, 0, 1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_artifacts_write_and_checkpoints_have_no_cache(tmp_path: Path) -> None:
    how = {"batch_size": 2, "loss": "sparse_categorical_crossentropy", "optimizer": "adam"}
    program = MODELS["pre-norm"]().compile("cpu", decode=True, **how)
    want = list(program.generate([3, 1], 15))
    program.save(tmp_path / "writer.zt")
    assert list(zt.load(tmp_path / "writer.zt").generate([3, 1], 15)) == want
    program.save_checkpoint(tmp_path / "run.safetensors")
    tensors, _ = read(tmp_path / "run.safetensors")
    assert not [n for n in tensors if n.endswith(("/keys", "/values"))]
    silent = MODELS["pre-norm"]().compile("cpu", **how)
    silent.load_checkpoint(tmp_path / "run.safetensors")
    silent.save_checkpoint(tmp_path / "back.safetensors")
    program.load_checkpoint(tmp_path / "back.safetensors")
    assert list(program.generate([3, 1], 15)) == want
    with pytest.raises(ConfigError, match="compile a causal model with decode=True"):
        silent.generate([1], 3)


@pytest.mark.parametrize(("middle", "culprit"), [
    ([L.TransformerEncoder(8, 2)], "transformer_encoder.*yet to come"),
    ([L.MultiHeadAttention(2)], "multi_head_attention.*yet to come"),
    ([L.LSTM(4, return_sequences=True)], "lstm.*mixes positions"),
    ([L.Conv1D(4, 3, padding="causal")], "conv1d.*mixes positions"),
    ([L.LayerNormalization(axis=1)], "layer_normalization.*mixes positions"),
    ([L.RotaryEmbedding()], "rotary_embedding.*mixes positions"),
    ([L.Lambda(lambda x: x)], "lambda.*nobody has said"),
    ([L.Dense(4, activation=lambda x: x * 2.0)], "dense.*a function of yours"),
])
def test_layers_that_see_more_than_one_position_are_refused(middle: list[L.Layer],
                                                            culprit: str) -> None:
    with pytest.raises(Unsupported, match=f"layer '.*{culprit}"):
        model(*middle).trace(1, decode=True)


def test_models_that_do_not_write_are_refused() -> None:
    ids, numbers = L.Input((4,), dtype="int32"), L.Input((4,))
    wrong = {"takes .4,. of float32": zt.Sequential([numbers, L.Dense(3)]),
             "several": zt.Model(ids, [L.Embedding(5, 4)(ids), L.Embedding(5, 3)(ids)])}
    for message, one in wrong.items():
        with pytest.raises(Unsupported, match=f"one input of integers.*{message}"):
            one.trace(1, decode=True)


WRONG_PROMPTS = [
    ([], "one or more integers"), ([[1, 2], [3]], "not several; call it for each"), ([[1, 2]], r"shape \(1, 2\)"), ([1.5], "not float64"),
    ([1, WORDS], "reaches from 1 to 7; layer 'embedding' takes 0 to 6"), ([-1], "from -1")]


def test_prompts_that_are_none() -> None:
    program = compiled("pre-norm")
    for prompt, message in WRONG_PROMPTS:
        with pytest.raises(DataError, match=message):
            program.generate(prompt, 3)


@pytest.mark.parametrize("how", [{"temperature": -1}, {"temperature": float("nan")}, {"top_k": 0},
                                 {"seed": -1}])
def test_choices_that_are_none(how: dict[str, Any]) -> None:
    with pytest.raises(ZtorchError):
        Sampler(**how)
