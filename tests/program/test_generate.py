"""Generating: the loop with its caches gives the results of the whole model, number by number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import device
from tests.cases.covering import one_in_each_run, pairs
from tests.cases.generating import LENGTH, MODELS, WORDS, compiled, decoder, model, uncached
from ztorch import layers as L
from ztorch.errors import ConfigError, DataError, Unsupported, ZtorchError
from ztorch.files.safetensors import read
from ztorch.program.generate import Continuation, Drawing

PROMPTS = [[4], [1, 2, 3, 4, 5], [k % WORDS for k in range(23)]]
WAYS: list[dict[str, Any]] = [
    {"temperature": 0}, {"temperature": 0.7, "seed": 5}, {"temperature": 1.5, "top_k": 3, "seed": 6},
    {"top_p": 0.6, "seed": 7}, {"top_k": 5, "top_p": 0.8, "seed": 8}, {"stop": 2, "seed": 9}]


@pytest.mark.parametrize(("name", "place"), pairs(
    [*MODELS], ["cpu float32", "cpu:scalar float32", "cpu float64"]))
def test_the_numbers_of_the_model_without_a_cache(name: str, place: str) -> None:
    """The likeliest numbers and drawn ones, also past the end of the row, where the older half is
    forgotten; and again from the start, on the caches of the prompt before."""
    program = compiled(name, *place.split())
    for prompt in PROMPTS:
        for how in WAYS[:2]:
            want = uncached(program, prompt, 3 * LENGTH, **how)
            assert program.generate(prompt, 3 * LENGTH, **how).tolist() == want
            assert program.generate(prompt, 4, **how).tolist() == want[:4]


@pytest.mark.parametrize("how", WAYS[::-1], ids=str)
def test_batches_of_prompts_equal_single_prompts(how: dict[str, Any]) -> None:
    """Of several lengths, more than the rows of the program, drawn by seeds of their own."""
    program = compiled("pre-norm", rows=2)
    seed = how.get("seed", 0)
    want = [uncached(program, prompt, 3 * LENGTH, **{**how, "seed": seed + k})
            for k, prompt in enumerate(PROMPTS)]
    assert "stop" not in how or {len(row) for row in want} != {3 * LENGTH}
    assert [row.tolist() for row in program.generate(PROMPTS, 3 * LENGTH, **how)] == want
    alone = [program.generate(prompt, 3 * LENGTH, **{**how, "seed": seed + k})
             for k, prompt in enumerate(PROMPTS)]
    assert [row.tolist() for row in alone] == want
    assert list(program.generate(PROMPTS[0], 3 * LENGTH, stream=True, **how)) == want[0]


@pytest.mark.parametrize("backend", one_in_each_run("opencl", "vulkan", "webgpu"))
def test_devices_generate_the_same(backend: str) -> None:
    device(backend)
    here = compiled("rotary", rows=2)
    there = MODELS["rotary"]().compile(f"{backend}:0", batch_size=2, decode=2)
    for how in (WAYS[0], WAYS[4]):
        want = [row.tolist() for row in here.generate(PROMPTS[:2], LENGTH + 3, **how)]
        assert [row.tolist() for row in there.generate(PROMPTS[:2], LENGTH + 3, **how)] == want
    streamed = there.generate(PROMPTS[0], 5, stream=True, **WAYS[4])
    assert list(streamed) == here.generate(PROMPTS[0], 5, **WAYS[4]).tolist()


def test_prefill_leaves_the_caches_of_number_by_number() -> None:
    """And leaves rows alone that it is not asked to write."""
    program = compiled("rotary", rows=2)
    random = np.random.default_rng(0)
    row = random.integers(0, WORDS, LENGTH)
    with program.borrow("generate") as call:
        call.inputs["live"][...] = [True, False]
        call.inputs["count"][...] = 1
        call.inputs["repetition_penalty"][...] = 1
        for position, token in enumerate(row):
            call.inputs["x"][...], call.inputs["position"][...] = token, position
            call()
    names = [n for n, spec in program.executable.states.items() if spec.role == "cache"]
    step_by_step = {n: program.executable.state(n).copy() for n in names}
    assert names and all((step_by_step[n][0] != 0).any() for n in names)
    with program.borrow("prefill") as call:
        call.inputs["x"][...] = row
        call.inputs["length"][...] = [0, LENGTH]
        call()
        assert call.outputs["position"].tolist() == [0, LENGTH - 1]
    for n in names:
        now = program.executable.state(n)
        np.testing.assert_array_equal(now[0], step_by_step[n][0])
        np.testing.assert_allclose(now[1], step_by_step[n][0], rtol=0, atol=3e-6)


def test_a_full_window_keeps_the_newer_half() -> None:
    row = Continuation([0, 1, 2, 3, 4], cached=True)
    row.cut(5)
    assert row.window == [0, 1, 2, 3, 4] and row.cached
    row.window.append(5)
    row.cut(5)
    assert row.window == [3, 4, 5] and not row.cached


def test_repeated_tokens_are_penalized() -> None:
    """With a large penalty, a model of positive logits never repeats itself."""
    program = model(L.PositionEmbedding(), decoder(), last="softplus").compile(
        "cpu", batch_size=1, decode=True)
    plain = program.generate([4], WORDS - 1, temperature=0).tolist()
    other = program.generate([4], WORDS - 1, temperature=0, repetition_penalty=1e6).tolist()
    assert len({4, *plain}) < WORDS == len({4, *other})
    by_one = [program.generate([4, *other[:k]], 1, temperature=0, repetition_penalty=1e6)[0]
              for k in range(WORDS - 1)]
    assert by_one == other


def test_tokens_are_streamed() -> None:
    program = compiled("pre-norm")
    writing = program.generate([1, 2], 1_000_000_000, stream=True)
    first = [next(writing), next(writing)]
    with pytest.raises(ConfigError, match="is already generating"):
        program.generate([1], 3)
    writing.close()
    assert program.generate([1, 2], 2).tolist() == first


def test_seeds() -> None:
    program = compiled("pre-norm")
    texts = [tuple(program.generate([1], 30, seed=s)) for s in (0, 1, 0, 1 << 32)]
    assert texts[0] == texts[2] and len(set(texts)) == 3


@pytest.mark.slow
def test_it_generates_the_training_text() -> None:
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
    ([L.TransformerEncoder(8, 2)], "transformer_encoder.*uses later positions"),
    ([L.MultiHeadAttention(2)], "multi_head_attention.*uses later positions"),
    ([L.LSTM(4, return_sequences=True, go_backwards=True)], "lstm.*uses later positions"),
    ([L.GRU(4, return_sequences=True, stateful=True)], "gru.*from call to call"),
    ([L.RNN(L.GRUCell(4)), L.RepeatVector(LENGTH)], "rnn.*gives one position"),
    ([L.Bidirectional(L.LSTM(4, return_sequences=True))], "bidirectional.*mixes positions"),
    ([L.Conv1D(4, 3, padding="causal")], "conv1d.*mixes positions"),
    ([L.LayerNormalization(axis=1)], "layer_normalization.*mixes positions"),
    ([L.RotaryEmbedding()], "rotary_embedding.*mixes positions"),
    ([L.Lambda(lambda x: x)], "lambda.*not known to keep"),
    ([L.Dense(4, activation=lambda x: x * 2.0)], "dense.*a custom function"),
    ([L.Operation("mul", [{"tensor": 0}, {"array": [[2.0]], "dtype": "float32"}])],
     "mul.*mixes positions"),
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
        with pytest.raises(Unsupported, match=f"one integer input.*{message}"):
            one.trace(1, decode=True)


WRONG_PROMPTS = [
    ([], "one or more integers"), ([[1, 2], []], "one or more integers"), ([1.5], "not float64"),
    ([1, [2]], "a list of such lists"), ([[[1]]], r"shape \(1, 1\)"),
    ([1, WORDS], "numbers from 1 to 7, but layer 'embedding' takes 0 to 6"), ([-1], "from -1"),
    ([[1], [WORDS]], "has numbers from 7 to 7, but layer")]


def test_invalid_prompts() -> None:
    program = compiled("pre-norm")
    for prompt, message in WRONG_PROMPTS:
        with pytest.raises(DataError, match=message):
            program.generate(prompt, 3)


WRONG_CHOICES = [
    ({"temperature": -1}, "temperature"), ({"temperature": float("nan")}, "temperature"),
    ({"top_k": 0}, "top_k"), ({"top_p": 0}, "top_p=...) must be a number above 0 and at most 1"),
    ({"top_p": 1.5}, "at most 1"), ({"seed": -1}, "seed"), ({"stop": 1.5}, "a list of integers"),
    ({"stop": "a"}, "a list of integers, not 'a'"), ({"stop": [1, None]}, "a list of integers"),
    ({"repetition_penalty": 0}, "repetition_penalty")]


def test_invalid_options() -> None:
    for how, message in WRONG_CHOICES:
        with pytest.raises(ZtorchError, match=re.escape(message)):
            Drawing(**how)
    program = compiled("pre-norm")
    with pytest.raises(ConfigError, match=r"stop=...\) has 7, but this model generates 0 to 6"):
        program.generate([1], 3, stop=[2, 7])
    with pytest.raises(ConfigError, match="takes one prompt, not a list"):
        program.generate([[1], [2]], 3, stream=True)
    for wrong in ("no", -2, 1.0):
        with pytest.raises(ConfigError, match="the number of rows to generate at once"):
            MODELS["no positions"]().trace(1, decode=wrong)
