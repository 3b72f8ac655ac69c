"""The command that reads damaged files: it tells every faulty result from a correct one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools import damaged_files
from tools.damage import content_changed, json_changed
from tools.damaged_files import Report, TooLong, parts, read_damaged, table
from tools.damaged_kinds import Kind
from ztorch.errors import DataError


def refused(path: Path) -> Any:
    raise DataError(f"{path.name} cannot be read")


def nameless(path: Path) -> Any:
    raise DataError("it cannot be read")


def raw(path: Path) -> Any:
    return json.loads(path.read_text())


def long(path: Path) -> Any:
    while True:
        sum(range(1000))


@pytest.mark.parametrize("read", [str, refused, nameless, raw, long], ids=lambda f: f.__name__)
def test_every_outcome(read: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def write(folder: Path, rng: random.Random) -> Path:
        (folder / "unlucky").write_text("[")
        return folder / "unlucky"

    monkeypatch.setattr(damaged_files, "SECONDS", 0.05)
    monkeypatch.setattr(damaged_files, "MOST_BYTES", 1 << 60)  # other tests share this process
    monkeypatch.setitem(damaged_files._kinds, "fake", Kind(write, read, 1.0))
    reports = read_damaged("fake", 3, 2)
    expected = {"str": "read"}.get(read.__name__, read.__name__)
    assert [(r.number, r.outcome) for r in reports] == [(3, expected), (4, expected)]
    assert not issubclass(TooLong, Exception)
    monkeypatch.setattr(damaged_files, "MOST_BYTES", 1)
    assert [r.outcome for r in read_damaged("fake", 0, 1)] == ["large"]


def test_the_table_counts_them() -> None:
    reports = [Report("a", 0, "read", "", 0.1, 1 << 20), Report("a", 1, "raw", "", 0.25, 3 << 20),
               Report("b", 0, "refused", "", 0.5, 2 << 20)]
    assert [line.split(" | ") for line in table(reports).splitlines()[2:]] == [
        ["| a", "1", "0", "0", "1", "0", "0", "0.2", "3 MiB |"],
        ["| b", "0", "1", "0", "0", "0", "0", "0.5", "2 MiB |"],
        ["| all", "1", "1", "0", "1", "0", "0", "0.5", "3 MiB |"]]


def test_messages_that_name_only_the_file_are_counted() -> None:
    messages = ["/tmp/a.onnx: node Relu 'r' reads 'x', which nothing defines", "/tmp/a.onnx has opset 3; x",
                "/tmp/a.onnx has opset 4; x", "/tmp/a.onnx: 'y' has the impossible shape (-1,)"]
    reports = [Report("ONNX, few", k, "refused", text, 0, 0) for k, text in enumerate(messages)]
    first, _, _, _, *rest = parts([*reports, Report(".npz", 0, "refused", "x", 0, 0)]).splitlines()
    assert first.startswith("2 of 4 messages") and rest == ["| 2 | has opset N |"]


def test_damage_is_the_same_in_each_run_and_is_damage() -> None:
    text = json.dumps({"a": [1, 2.5, "b"], "c": {"d": True}}).encode()
    for k in range(50):
        first, again = (content_changed("config.json", text, random.Random(k)) for _ in range(2))
        assert first == again
    changed = [json_changed(text, random.Random(k)) for k in range(50)]
    assert all(json.loads(c) is not None for c in changed)
    assert sum(c != text for c in changed) > 40
