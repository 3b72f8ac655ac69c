"""Pages of models in a browser, and how a reader uses them."""

from __future__ import annotations

import json
import re
import struct
import zlib
from pathlib import Path

from tests.cases.browser import Tab

NO_GPU = "Object.defineProperty(Navigator.prototype, 'gpu', { value: undefined });"
FAILED = "document.querySelector('#state.error')"
READY = "globalThis.model && document.querySelector('#state').className !== 'busy'"


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
    result = tab.call("Runtime.evaluate", expression="document.querySelector('[type=file]')")
    tab.call("DOM.setFileInputFiles", files=[str(path)], objectId=result["result"]["objectId"])


def png(path: Path, value: int) -> Path:
    """A picture of one gray."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">2I5B", 16, 16, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes([0, *[value] * 16]) * 16)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    return path


def quiet(tab: Tab) -> None:
    """Nothing went wrong unseen, and nobody was asked for anything."""
    assert tab.complaints() == [] and tab.requests() == []
