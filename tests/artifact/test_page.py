"""The page of a model, opened from its file in Chromium: what a person does there, and that what the
page says is what programs here compute."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ztorch as zt
from tests.artifact.pages import FAILED, NO_GPU, READY, choose, from_docs, png, press, quiet
from tests.cases.available import REQUIRED
from tests.cases.browser import Browser, Tab
from ztorch import layers as L

NO_HASHES = "Object.defineProperty(Crypto.prototype, 'subtle', { value: undefined });"  # as by http
MOST_BYTES = 252_000  # of the page of the digits CNN that trains
TRAINING = {"loss": "sparse_categorical_crossentropy", "optimizer": "adam", "metrics": ["accuracy"]}


def digits_cnn() -> zt.Model:
    from ztorch.sources.find import find

    return find("digits_cnn").model


def digits() -> tuple[np.ndarray, np.ndarray]:
    (_, _), (x, y) = zt.data.load("digits")
    return x, y


def predicted(tab: Tab, x: np.ndarray) -> np.ndarray:
    """The outputs of the page's model for rows."""
    return np.array(tab.evaluate(f"model.predict({json.dumps(x.ravel().tolist())}).then((y) => [...y])"))


def drop(tab: Tab, selector: str, path: Path) -> None:
    """Lets a picture fall on an element."""
    tab.evaluate(f"""{{ const files = new DataTransfer();
        files.items.add(new File([Uint8Array.from({list(path.read_bytes())})], "{path.name}", {{ type: "image/png" }}));
        document.querySelector("{selector}").dispatchEvent(new DragEvent("drop", {{ dataTransfer: files, cancelable: true }})); }}""")


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_c")
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
        """The picture that was predicted last, after checking the page's text about it."""
        tab.until("globalThis.seen")
        pixels, probabilities, winner = map(np.array, tab.evaluate("[...seen, document.querySelector('#winner b').innerText]"))
        want = program.predict(pixels.astype(np.float32).reshape(1, 8, 8, 1))[0]
        np.testing.assert_allclose(probabilities, want, rtol=0, atol=1e-6)
        assert winner == str(want.argmax())
        return pixels.reshape(8, 8)

    tab.evaluate("seen = undefined, document.querySelectorAll('#samples button')[7].click()")
    np.testing.assert_array_equal(shown(), x[y == 7][0, :, :, 0])  # not rounded to a screen's 256 grays
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
    choose(tab, png(tmp_path / "gray.png", 51))
    tab.until("Math.abs(seen[0][0] - 0.2) < 1e-6")
    np.testing.assert_allclose(shown(), 0.2, atol=1e-6)
    (tmp_path / "text.png").write_text("no picture")
    choose(tab, tmp_path / "text.png")
    tab.until(FAILED)
    assert "text.png is not a picture" in tab.text("#state")
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
    output = tab.evaluate(from_docs("model.train", weight="digit/kernel").replace(
        "kernel, file", "[...kernel], (await file.text()).length"))
    fresh = digits_cnn().compile("cpu", batch_size=16, **TRAINING)
    want = fresh.train_on_batch(x[:16], y[:16])
    np.testing.assert_allclose(output[:2], want, rtol=1e-4)
    np.testing.assert_allclose(output[3], fresh.get_weights()[-2].ravel(), rtol=0, atol=1e-5)
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
