"""The page of a model, opened from its file in Chromium: what a person does there, and that what the
page says is what programs here compute."""

from __future__ import annotations

import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztorch as zt
from tests.cases.available import REQUIRED
from tests.cases.browser import Browser, Tab
from ztorch import layers as L

NO_GPU = "Object.defineProperty(Navigator.prototype, 'gpu', { value: undefined });"
NO_HASHES = "Object.defineProperty(Crypto.prototype, 'subtle', { value: undefined });"  # as by http
MOST_BYTES = 250_000  # of the page of the digits CNN that trains
TRAINING = {"loss": "sparse_categorical_crossentropy", "optimizer": "adam", "metrics": ["accuracy"]}
FAILED = "document.querySelector('#state.error')"
READY = "globalThis.model && document.querySelector('#state').className !== 'busy'"


def digits_cnn() -> zt.Model:
    from ztorch.sources.find import find

    return find("digits_cnn").model


def digits() -> tuple[np.ndarray, np.ndarray]:
    (_, _), (x, y) = zt.data.load("digits")
    return x, y


def predicted(tab: Tab, x: np.ndarray) -> np.ndarray:
    """What the page's model makes of rows."""
    return np.array(tab.evaluate(f"model.predict({json.dumps(x.ravel().tolist())}).then((y) => [...y])"))


def from_docs(word: str, **smaller: str) -> str:
    """The block of docs/web.md that has a word, to be awaited; `smaller` is written for what this model lacks."""
    pages = (Path(__file__).parents[2] / "docs" / "web.md").read_text()
    [code] = [c for c in re.findall(r"^```js\n(.*?)^```", pages, re.M | re.S) if word in c]
    for name, replacement in smaller.items():
        assert SAID[name] in code
        code = code.replace(SAID[name], replacement)
    names = re.findall(r"^const (\{.*?\}|\w+) =", code, re.M)
    return f"(async () => {{ {code} return [{', '.join(n.strip('{ }') for n in names)}]; }})()"


SAID = {"weight": "dense/kernel", "ids": "4]", "k": "topK: 10"}  # in those blocks


def press(tab: Tab, words: str) -> None:
    """Clicks the button that begins with these words."""
    tab.evaluate(f"[...document.querySelectorAll('button')].find((b) => b.innerText.startsWith({json.dumps(words)})).click()")


def choose(tab: Tab, path: Path) -> None:
    """Gives a file to the page's picker."""
    found = tab.call("Runtime.evaluate", expression="document.querySelector('[type=file]')")
    tab.call("DOM.setFileInputFiles", files=[str(path)], objectId=found["result"]["objectId"])


def drop(tab: Tab, selector: str, path: Path) -> None:
    """Lets a picture fall on an element."""
    tab.evaluate(f"""{{ const files = new DataTransfer();
        files.items.add(new File([Uint8Array.from({list(path.read_bytes())})], "{path.name}", {{ type: "image/png" }}));
        document.querySelector("{selector}").dispatchEvent(new DragEvent("drop", {{ dataTransfer: files, cancelable: true }})); }}""")


def png(path: Path, value: int) -> Path:
    """A picture of one grey."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">2I5B", 16, 16, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes([0, *[value] * 16]) * 16)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    return path


def quiet(tab: Tab) -> None:
    """Nothing went wrong unseen, and nobody was asked for anything."""
    assert tab.complaints() == [] and tab.requests() == []


@pytest.mark.slow
def test_a_page_of_pictures_without_webgpu(browser: Browser, tmp_path: Path) -> None:
    """Samples, drawing, files and the camera; then training, the weights to Python and a reset."""
    model, (x, y) = digits_cnn(), digits()
    files = model.export(tmp_path / "page", format="web", train=True, batch_size=16, samples=(x, y), **TRAINING)
    assert files[-1].name == "index.html" and files[-1].stat().st_size < MOST_BYTES
    (alone := tmp_path / "alone").mkdir()
    page = files[-1].rename(alone / "index.html")  # it needs no file beside it
    program = model.compile("cpu", batch_size=16, **TRAINING)
    tab = browser.open(page, NO_GPU + NO_HASHES)
    tab.until(READY)
    assert tab.text("#state") == "" and tab.evaluate("model.runsOn") == "WebAssembly"
    np.testing.assert_allclose(predicted(tab, x[:20]), program.predict(x[:20]).ravel(), rtol=0, atol=1e-6)

    tab.evaluate("""{ const run = model.predict.bind(model);
        model.predict = async (x) => { const y = await run(x); globalThis.seen = [[...x], [...y]]; return y; }; }""")

    def shown() -> np.ndarray:
        """The picture that was predicted last, after checking what the page says of it."""
        tab.until("globalThis.seen")
        pixels, probabilities, winner = map(np.array, tab.evaluate("[...seen, document.querySelector('#winner b').innerText]"))
        want = program.predict(pixels.astype(np.float32).reshape(1, 8, 8, 1))[0]
        np.testing.assert_allclose(probabilities, want, rtol=0, atol=1e-6)
        assert winner == str(want.argmax())
        return pixels.reshape(8, 8)

    tab.evaluate("seen = undefined, document.querySelectorAll('#samples button')[7].click()")
    np.testing.assert_array_equal(shown(), x[y == 7][0, :, :, 0])  # not rounded to a screen's 256 greys
    seven = []
    for words in ("", "Clear"):  # the first stroke on a sample begins a picture, as the button does
        if words:
            press(tab, words)
            tab.until("seen[0].every((v) => v === 0)")
        tab.evaluate("seen[0].fill(0)")
        tab.draw(".pad canvas", [(0.25, 0.2), (0.8, 0.2), (0.6, 0.5), (0.4, 0.9)])
        tab.until("seen[0][7 * 8 + 3] > 0.3")  # the end of the stroke
        seven.append(shown())
    assert seven[0][1].max() > 0.5 and seven[0][:, 0].max() == 0  # a 7
    np.testing.assert_array_equal(*seven)
    choose(tab, png(tmp_path / "grey.png", 51))
    tab.until("Math.abs(seen[0][0] - 0.2) < 1e-6")
    np.testing.assert_allclose(shown(), 0.2, atol=1e-6)
    (tmp_path / "text.png").write_text("no picture")
    choose(tab, tmp_path / "text.png")
    tab.until(FAILED)
    assert "text.png is no picture" in tab.text("#state")
    press(tab, "Camera")
    tab.until("new Set(seen[0]).size > 5")  # Chromium's own test picture
    tab.until("document.querySelector('#state').innerText === ''")
    press(tab, "Camera")
    shown()

    press(tab, "Train")
    assert tab.evaluate("document.querySelector('#predict').hidden")
    tab.draw(".pad canvas", [(0.5, 0.1), (0.5, 0.9)])
    tab.evaluate("document.querySelectorAll('.classes button')[1].click()")
    assert tab.text("#examples") == "1"
    tab.until("seen[0].every((v) => v === 0)")  # the pad is free again
    drop(tab, ".classes button:nth-child(3)", png(tmp_path / "other.png", 102))
    tab.until("document.querySelectorAll('#examples button').length === 2")
    assert tab.text("#examples").split() == ["1", "2"]
    press(tab, "Remove examples")
    press(tab, "Add 12 samples")
    tab.evaluate("document.querySelector('#controls input').value = 2")
    tab.evaluate("document.querySelector('#controls .main').click()")
    tab.until("document.querySelector('#progress').innerText.startsWith('epoch 2') && "
              "document.querySelector('#controls .main').innerText === 'Train'")
    order = np.concatenate([np.flatnonzero(y == k)[:1] for k in range(10)] + [np.flatnonzero(y == k)[1:2] for k in range(2)])
    losses = program.fit(x[order], y[order], epochs=2, shuffle=False, verbose=0).history["loss"]
    assert float(tab.text("#progress").split()[3].strip(",")) == pytest.approx(losses[1], rel=2e-3)
    assert losses[1] < losses[0]
    np.testing.assert_allclose(predicted(tab, x[:5]), program.predict(x[:5]).ravel(), rtol=0, atol=1e-5)

    for width in (320, 1100):  # nothing is wider than a phone, nor than a desk
        tab.resize(width, 800)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path), eventsEnabled=True)
    press(tab, "Download")
    browser.until_event("Browser.downloadProgress", state="completed")
    learned = digits_cnn()
    learned.load_weights(tmp_path / "digits_cnn.safetensors")
    np.testing.assert_allclose(learned.compile("cpu", batch_size=16).predict(x[:5]), program.predict(x[:5]), rtol=0, atol=1e-5)
    press(tab, "Reset")
    tab.until("document.querySelector('#progress').innerText === '12 examples'")
    np.testing.assert_array_equal(predicted(tab, x[:5]), digits_cnn().compile("c", batch_size=16).predict(x[:5]).ravel())
    tab.evaluate(f"globalThis.x = {x[:16].ravel().tolist()}, globalThis.labels = {y[:16].tolist()},"
                 "globalThis.numbers = new Float32Array(320).fill(0.5), 0")
    said = tab.evaluate(from_docs("model.train", weight="digit/kernel").replace(
        "kernel, file", "[...kernel], (await file.text()).length"))
    fresh = digits_cnn().compile("cpu", batch_size=16, **TRAINING)
    want = fresh.train_on_batch(x[:16], y[:16])
    np.testing.assert_allclose(said[:2], want, rtol=1e-4)
    np.testing.assert_allclose(said[3], fresh.get_weights()[-2].ravel(), rtol=0, atol=1e-5)
    quiet(tab)
    tab.close()


def test_a_page_of_numbers_on_webgpu(browser: Browser, tmp_path: Path) -> None:
    model = zt.Sequential([L.Input((3,)), L.Dense(4, activation="tanh"), L.Dense(1)], name="numbers", seed=2)
    page = model.export(tmp_path, format="web", batch_size=2, samples=np.eye(3))[-1]
    tab = browser.open(page)
    if not tab.evaluate("navigator.gpu?.requestAdapter().then(Boolean)"):
        assert "webgpu" not in REQUIRED, "WebGPU is required here, and Chromium finds no adapter"
        pytest.skip("Chromium finds no adapter for WebGPU")
    tab.until(READY)
    assert tab.evaluate("model.runsOn") == "WebGPU" and tab.text("#state") == ""
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    want = model.compile("cpu").predict(x).ravel()
    np.testing.assert_allclose(predicted(tab, x), want, rtol=0, atol=1e-6)

    def write(words: str) -> None:
        tab.evaluate(f"document.querySelector('textarea').value = {json.dumps(words)};"
                     "document.querySelector('textarea').oninput()")

    for words, error in (("1, two, 3", "two is not a number"), ("1, 2", "takes 3 numbers, and there are 2")):
        write(words)
        tab.until(FAILED)
        assert error in tab.text("#state")
    write(", ".join(map(str, x[1].tolist())))
    tab.until("!document.querySelector('#state.error')")
    assert float(tab.text("#winner b")) == pytest.approx(want[1], rel=1e-3)

    assert tab.evaluate("[...document.querySelector('#engine').options].map((o) => o.value)") == ["WebGPU", "WebAssembly"]
    tab.evaluate("document.querySelector('#engine').value = 'WebAssembly'; document.querySelector('#engine').onchange()")
    np.testing.assert_allclose(predicted(tab, x), want, rtol=0, atol=1e-6)
    assert tab.evaluate("model.runsOn") == "WebAssembly"
    quiet(tab)
    tab.close()


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
        said = tab.evaluate(from_docs("model.generate", ids="2]", k="topK: 2").replace(
            "return [tokens, rows, best]", "return [[...tokens], rows.map((r) => [...r]), [...best]]"))
        cycle = [3, 1, 2] * 40
        assert said == [cycle[:100], [cycle[2:102], cycle[:100]], cycle[:20]], said
        assert tab.evaluate("shown") == cycle[:100]
    tab.evaluate("globalThis.predictions = 0; { const run = model.predict.bind(model);"
                 "model.predict = (...x) => { predictions += 1; return run(...x); }; }")
    tab.evaluate("document.querySelector('textarea').value = 'A'")
    press(tab, "Write on")
    tab.until("document.querySelector('textarea').value.length > 200")
    assert tab.evaluate("document.querySelector('textarea').value") == "abc" * 67
    assert tab.evaluate("predictions") == (0 if decode else 200)
    quiet(tab)
    tab.close()


def test_white_may_be_255(browser: Browser, tmp_path: Path) -> None:
    model = zt.Sequential([L.Input((8, 8, 3)), L.GlobalAveragePooling2D()], name="means")
    tab = browser.open(model.export(tmp_path, format="web")[-1], NO_GPU)
    tab.until(READY)
    choose(tab, png(tmp_path / "grey.png", 51))
    tab.until("document.querySelector('#outputs td:last-child')?.innerText === '0.2000'")
    tab.evaluate("document.querySelector('.row input[type=number]').value = 255; document.querySelector('.row input[type=number]').oninput()")
    tab.until("document.querySelector('#outputs td:last-child').innerText === '51.00'")
    quiet(tab)
    tab.close()


def test_a_page_of_words(browser: Browser, tmp_path: Path) -> None:
    reader = L.TextVectorization(output_sequence_length=4)
    reader.adapt(["The cat sat.", "The dog sat!"])
    model = zt.Sequential([L.Input((4,), dtype="int32"), L.Embedding(reader.vocabulary_size(), 3), L.Flatten(),
                           L.Dense(2, activation="softmax")], name="words", seed=1)
    model.pipeline = zt.Pipeline.of_layer(reader, ["cats", "dogs"])
    page = model.export(tmp_path, format="web")[-1]
    tab = browser.open(page, NO_GPU)
    tab.until(READY)
    for words in ("the DOG, and: the cat", "cat"):
        tab.evaluate(f"document.querySelector('textarea').value = {json.dumps(words)}; document.querySelector('textarea').oninput()")
        likely = model.compile("cpu").predict(reader([words]).astype(np.int32))[0]
        tab.until(f"document.querySelector('#winner').innerText.replace(/\\s+/g, ' ').trim() === '{['cats', 'dogs'][likely.argmax()]} {100 * likely.max():.0f} %'")
    quiet(tab)
    tab.close()


def test_a_page_without_webassembly_says_so(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ztorch.codegen import wasm

    model: Any = zt.Sequential([L.Input((4,)), L.Dense(3)], name="<b id=1>small & co")
    monkeypatch.setattr(wasm, "available", lambda: False)
    with pytest.warns(UserWarning, match="runs on WebGPU alone.*pip install ziglang"):
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
