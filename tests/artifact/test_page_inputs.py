"""Pages of models for text, letters, words and pictures on a white ground."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.artifact.pages import FAILED, NO_GPU, READY, choose, from_docs, png, press, quiet
from tests.cases.browser import Browser
from tests.cases.sounds import write
from ztorch import layers as L


def test_a_page_reads_text_as_the_model_does(browser: Browser, tmp_path: Path) -> None:
    words = L.TextVectorization(vocabulary=["good", "bad", "day"], output_sequence_length=4)
    model = zt.Sequential([words, L.Embedding(5, 4), L.Flatten(), L.Dense(1)], name="texts", seed=2)
    tab = browser.open(model.export(tmp_path, format="web", batch_size=1)[-1])
    tab.until(READY)
    for text in ("A good, good DAY!", "bad"):
        tab.evaluate(f"document.querySelector('textarea').value = {json.dumps(text)};"
                     "document.querySelector('textarea').oninput()")
        want = float(model.predict([text], verbose=0)[0, 0])
        tab.until(f"Math.abs(Number(document.querySelector('#winner b')?.innerText) - {want}) < {abs(want) * 1e-2}")
    quiet(tab)
    tab.close()


@pytest.mark.parametrize("flat", [False, True], ids=["picture", "bars"])
def test_a_page_shows_more_numbers_than_a_call_has_arguments(browser: Browser, tmp_path: Path, flat: bool) -> None:
    """A picture of 480 x 480, or the first ten numbers and how many there are."""
    model = zt.Sequential([L.Input((8, 8, 1)), L.UpSampling2D(60), *[L.Flatten()] * flat], name="large")
    tab = browser.open(model.export(tmp_path, format="web", batch_size=1)[-1], NO_GPU)
    tab.until(READY)
    shown = ("document.querySelector('#outputs .note')?.innerText.includes((480 * 480 - 10).toLocaleString())" if flat else
             "document.querySelector('#outputs canvas')?.width === 480")
    tab.until(f"{FAILED} || {shown}")
    assert tab.evaluate(f"{FAILED} === null && {shown}")
    quiet(tab)
    tab.close()


@pytest.mark.parametrize("decode", [False, 4])
def test_a_page_of_letters_writes_on(browser: Browser, tmp_path: Path, decode: int) -> None:
    """By the loop of `generate` where that was exported, else by a prediction for each letter."""
    letters = " abc"
    model = zt.Sequential([L.Input(("length",), dtype="int32"), L.Embedding(4, 4), L.Dense(4, activation="softmax")], name="letters", seed=0)
    after = np.full((4, 4), -20.0)  # a is followed by b, b by c, and c by a
    after[[0, 1, 2, 3], [1, 2, 3, 1]] = 20
    model.set_weights([np.eye(4), after, np.zeros(4)])
    page = model.export(tmp_path, format="web", letters=letters, sizes=6, decode=decode)[-1]
    tab = browser.open(page, NO_GPU)
    tab.until(READY)
    assert tab.evaluate("model.generates") == bool(decode)
    if decode:
        tab.evaluate("globalThis.shown = [], globalThis.show = (token) => shown.push(token)")
        output = tab.evaluate(from_docs("model.generate", ids="2]", k="topK: 2").replace(
            "return [tokens, rows, best]", "return [[...tokens], rows.map((r) => [...r]), [...best]]"))
        cycle = [3, 1, 2] * 40
        assert output == [cycle[:100], [cycle[2:102], cycle[:100]], cycle[:20]], output
        assert tab.evaluate("shown") == cycle[:100]
    tab.evaluate("globalThis.predictions = 0; { const run = model.predict.bind(model);"
                 "model.predict = (...x) => { predictions += 1; return run(...x); }; }")
    tab.evaluate("document.querySelector('textarea').value = 'A'")
    press(tab, "Write on")
    tab.until("document.querySelector('textarea').value.length > 200")
    assert tab.evaluate("document.querySelector('textarea').value") == "abc" * 67
    tab.until(f"predictions === {1 if decode else 201}")  # the last shows the letter after all
    quiet(tab)
    tab.close()


def test_white_may_be_255(browser: Browser, tmp_path: Path) -> None:
    model = zt.Sequential([L.Input((8, 8, 3)), L.GlobalAveragePooling2D()], name="means")
    tab = browser.open(model.export(tmp_path, format="web")[-1], NO_GPU)
    tab.until(READY)
    choose(tab, png(tmp_path / "gray.png", 51))
    tab.until("document.querySelector('#outputs td:last-child')?.innerText === '0.2000'")
    tab.evaluate("document.querySelector('.row input[type=number]').value = 255; document.querySelector('.row input[type=number]').oninput()")
    tab.until("document.querySelector('#outputs td:last-child').innerText === '51.00'")
    quiet(tab)
    tab.close()


def test_a_page_of_words(browser: Browser, tmp_path: Path) -> None:
    reader = L.TextVectorization(output_sequence_length=4)
    reader.adapt(["The cat sat.", "The dog sat!"])
    model = zt.Sequential([L.Input((4,), dtype="int32"), L.Embedding(reader.vocabulary_size(), 3), L.Flatten(),
                           L.Dense(1, activation="sigmoid")], name="words", seed=1)  # the probability of dogs
    model.pipeline = zt.Pipeline.of_layer(reader, ["cats", "dogs"])
    page = model.export(tmp_path, format="web")[-1]
    tab = browser.open(page, NO_GPU)
    tab.until(READY)
    for words in ("the DOG, and: the cat", "cat"):
        tab.evaluate(f"document.querySelector('textarea').value = {json.dumps(words)}; document.querySelector('textarea').oninput()")
        dogs = float(model.compile("cpu").predict(reader([words]).astype(np.int32))[0, 0])
        likely = np.array([1 - dogs, dogs])
        tab.until(f"document.querySelector('#winner').innerText.replace(/\\s+/g, ' ').trim() === '{['cats', 'dogs'][likely.argmax()]} {100 * likely.max():.0f} %'")
    quiet(tab)
    tab.close()


def test_a_page_without_webassembly_says_so(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ztorch.codegen import wasm

    model: Any = zt.Sequential([L.Input((4,)), L.Dense(3)], name="<b id=1>small & co")
    monkeypatch.setattr(wasm, "available", lambda: False)
    with pytest.warns(UserWarning, match="runs only on WebGPU.*pip install ziglang"):
        page = model.export(tmp_path, format="web")[-1]
    tab = browser.open(page, NO_GPU)
    tab.until(FAILED)
    assert "there is no WebGPU here" in tab.text("#state") and "ziglang" in tab.text("#state")
    light, dark = (tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]) or
                   tab.evaluate("getComputedStyle(document.body).backgroundColor") for scheme in ("light", "dark"))
    assert light != dark
    assert tab.text("#name") == "<b id=1>small & co" and tab.evaluate("document.querySelector('#main').hidden")
    quiet(tab)
    tab.close()


def test_a_page_hears_sounds(browser: Browser, tmp_path: Path) -> None:
    """Of files, brought to the rate of the model, and of the microphone, which is imitated."""
    model = zt.Sequential([L.Input((64, 1)), L.GlobalAveragePooling1D(), L.Dense(2, activation="softmax")],
                          name="sounds", seed=3)
    model.pipeline = zt.Pipeline.of_classes(["low", "high"], rate=8000)
    low, high = (np.full((90, 1), value) for value in (-0.5, 0.5))
    tab = browser.open(model.export(tmp_path, format="web", samples=np.stack([low[:64], high[:64]]))[-1], NO_GPU)
    tab.until(READY)
    for sound in (low, high):
        choose(tab, write(tmp_path / "a.wav", np.concatenate([sound, sound], 1)))
        want = model.predict(sound[None, :64].astype(np.float32), verbose=0)[0]
        name, share = ("low", "high")[int(want.argmax())], round(100 * float(want.max()))
        tab.until(f"document.querySelector('#winner').innerText.replace(/\\s+/g, ' ').trim() === '{name} {share} %'")
    press(tab, "Record")
    tab.until("[...document.querySelectorAll('button')].some((b) => b.innerText === 'Stop')")
    press(tab, "Stop")
    tab.until("[...document.querySelectorAll('button')].some((b) => b.innerText === 'Record')")
    tab.until("document.querySelector('#time').innerText")
    tab.evaluate("document.querySelector('#samples button').click()")
    tab.until("document.querySelector('#winner b').innerText.length")
    (tmp_path / "a.wav").write_bytes(b"RIFF, and no sound")
    choose(tab, tmp_path / "a.wav")
    tab.until(FAILED)
    assert tab.text("#state") == "a.wav is not a sound that the browser can read"
    quiet(tab)
    tab.close()
