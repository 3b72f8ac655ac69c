"""Chromium without a window, led by the DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import json
import os
import selectors
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

COMMANDS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu-sandbox", "--remote-debugging-pipe",
         "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--hide-scrollbars",
         "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
         "--disable-background-networking", "--no-first-run", "--disable-extensions")
PATIENCE = 60  # seconds for an answer


class Browser:
    """One Chromium; closed by `close`."""

    def __init__(self, folder: Path):
        command = next(filter(shutil.which, COMMANDS), None)
        if command is None:
            required = os.environ.get("ZTORCH_REQUIRE_PEERS")
            assert not required, "Chromium is required here, to open pages"
            pytest.skip("Chromium is not installed")
        to_read, self._send = os.pipe()
        self._receive, to_write = os.pipe()
        script = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", command, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._ids = 0
        self._buffer = b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, /, **params: Any) -> dict[str, Any]:
        """The answer to a command; events that come before it are kept."""
        self._ids += 1
        message = {"id": self._ids, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message(method)
            if answer.get("id") == self._ids:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def until_event(self, method: str, **params: Any) -> None:
        """Waits for an event with these parameters."""
        while not any(e.get("method") == method and params.items() <= e["params"].items()
                      for e in self.events):
            self.events.append(self._message(method))

    def _message(self, method: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(self._receive, selectors.EVENT_READ)
            while b"\0" not in self._buffer:
                assert selector.select(max(0, deadline - time.monotonic())), f"Chromium does not answer {method}"
                data = os.read(self._receive, 1 << 20)
                assert data, f"Chromium ended at {method}"
                self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path, before: str = "", **media: str) -> Tab:
        """A tab that shows a file; `before` runs before the page's own scripts."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.call(f"{domain}.enable")
        tab.call("Emulation.setEmulatedMedia",
                 features=[{"name": k.replace("_", "-"), "value": v} for k, v in media.items()])
        if before:
            tab.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        tab.call("Page.navigate", url=path.resolve().as_uri())
        tab.until("document.readyState === 'complete'")
        return tab

    def close(self) -> None:
        os.close(self._send)
        os.close(self._receive)
        self._process.terminate()
        self._process.wait(20)


class Tab:
    """A page that is open."""

    def __init__(self, browser: Browser, session: str, target: str):
        self.browser, self.session, self.target = browser, session, target

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def until(self, condition: str) -> Any:
        """Waits until an expression is true, and returns its value."""
        deadline = time.monotonic() + PATIENCE
        result = f"((value) => value instanceof Node || value)(({condition}))"
        while not (value := self.evaluate(result)):
            assert time.monotonic() < deadline, f"{condition} stays {value!r}; the page says {self.text('#state')!r}"
            time.sleep(0.02)
        return value

    def text(self, selector: str) -> str:
        """The text of an element as a reader sees it."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def draw(self, selector: str, points: list[tuple[float, float]]) -> None:
        """A stroke with the mouse through points of an element, from 0 to 1."""
        x, y, width, height = self.evaluate(
            f"(({{x, y, width, height}}) => [x, y, width, height])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")
        for k, (i, j) in enumerate(points):
            self.call("Input.dispatchMouseEvent", type="mouseMoved" if k else "mousePressed",
                      x=x + i * width, y=y + j * height, button="left", buttons=1, clickCount=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=x + i * width, y=y + j * height,
                  button="left", clickCount=1)

    def resize(self, width: int, height: int) -> None:
        """The size of the window, in pixels; narrow ones are phones."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)

    def picture(self, path: Path, width: int, height: int = 900) -> None:
        """A screenshot of all of the page."""
        self.resize(width, height)
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(shot))

    def requests(self) -> list[str]:
        """The addresses that the page asked for, itself aside."""
        urls = [e["params"]["request"]["url"] for e in self._events("Network.requestWillBeSent")]
        return [url for url in urls if not url.startswith(("data:", "blob:"))][1:]

    def complaints(self) -> list[str]:
        """Uncaught exceptions, and errors in the console."""
        thrown = [e["params"]["exceptionDetails"]["text"] for e in self._events("Runtime.exceptionThrown")]
        logged = [e["params"]["entry"]["text"] for e in self._events("Log.entryAdded")
                  if e["params"]["entry"]["level"] == "error"]
        printed = [str(e["params"]["args"]) for e in self._events("Runtime.consoleAPICalled")
                   if e["params"]["type"] == "error"]
        return [*thrown, *logged, *printed]

    def _events(self, method: str) -> list[dict[str, Any]]:
        self.evaluate("1")  # all that came before
        return [e for e in self.browser.events
                if e.get("method") == method and e.get("sessionId") == self.session]

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)
