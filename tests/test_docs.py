"""The tutorial and the guides: their python blocks run, and print the output on the pages.

The blocks of a page run in order in one namespace, in a separate folder. A `text` block directly behind one is what it
prints: the same words, integers the same, and fractions alike, for their last digits depend on the processor. Times may
differ. `--update-goldens` writes what is printed into the pages.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from ztorch.cli import main

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [DOCS / "index.md", DOCS / "tutorial.md", *sorted((DOCS / "guides").glob("*.md"))]
STEP = re.compile(r"^```(python|sh|\w+ title=\"(.*?)\")\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
                  re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
TIME = re.compile(r"\d+(?:\.\d+)?(?:us|ms|s|m| us)\b")  # of an epoch, a step, a call
FRACTION = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?")
MACHINE = re.compile(r"cpu:0 \(.*?\)|\bcpu:(?:sse4\.1|avx2|avx512|neon)\b")  # whichever it is


def words(text: str) -> str:
    """The text with marks in place of times and fractions."""
    return FRACTION.sub("#", TIME.sub("@", MACHINE.sub("cpu", text))).rstrip()


def fractions(text: str) -> list[float]:
    return [float(x) for x in FRACTION.findall(TIME.sub("@", text))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_blocks_print_the_documented_output(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                            request: pytest.FixtureRequest) -> None:
    if page.stem in ("performance",):
        pytest.importorskip("matplotlib")
    if page.stem == "other_frameworks":
        pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ztorch.compile.tuned_files.folder", lambda: tmp_path / "tuned")
    text = page.read_text()
    names: dict[str, object] = {"__name__": "page"}
    printed: dict[tuple[int, int], str] = {}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 1
        code = compile("\n" * line + block[1], str(page), "exec")  # errors name the page's line
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, names)
        if block[2] is not None:
            printed[block.span(2)] = out.getvalue()
    if request.config.getoption("--update-goldens"):
        for (start, end), lines in reversed(printed.items()):
            text = text[:start] + lines + text[end:]
        page.write_text(text)
        return
    for (start, end), lines in printed.items():
        old_lines = text[start:end]
        assert words(lines) == words(old_lines)
        assert fractions(lines) == pytest.approx(fractions(old_lines), rel=0.15, abs=0.06)


def test_a_stranger_follows_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the table on: blocks with a title are files, and shell commands work."""
    pytest.importorskip("PIL")
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "tutorial.md").read_text()
    names: dict[str, object] = {}
    exec("import ztorch as zt", names)
    run = 0
    for kind, title, block, printed in STEP.findall(text[text.index("## 7."):text.index("## 9.")]):
        if title:
            Path(title).write_text(block)
        elif kind == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(block, names)
        else:
            outputs = [shell(line.split()) for line in block.splitlines()]
            run += len(outputs)
            assert printed in ("", outputs[-1])
    assert run == 10
    for kind in ("day", "night"):
        assert shell(["ztorch", "run", "photos.zt", f"photos/{kind}/3.jpg"]).startswith(f"{kind} ")
    result = CliRunner().invoke(main, ["train", "photos"])
    assert "ztorch train net.py --data photos" in result.output


def shell(words: list[str]) -> str:
    """The output of a command; those of the package run in this process."""
    if words[0] == "ztorch":
        result = CliRunner().invoke(main, words[1:])
        assert result.exit_code == 0, result.output
        return result.output
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_the_pages_have_blocks_to_run() -> None:
    counted = {page.stem: len(BLOCK.findall(page.read_text())) for page in PAGES}
    assert counted["tutorial"] >= 8 and counted["training"] >= 7
    assert all(counted.values()), counted


ROOT = DOCS.parent
FILE = re.compile(r"`((?:[\w.-]+/)+|[\w./-]+\.(?:py|md|toml))`")  # a folder or a file
MINE = {"script.py", "train.py", "CONTRIBUTING.md"}  # a reader's own; one that is at the root


def test_files_named_by_pages_exist() -> None:
    """Those between backquotes, from the root, the package, or the folder of pages."""
    for page in (ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "README.md", *PAGES,
                 DOCS / "compiler.md"):
        for name in FILE.findall(page.read_text()):
            if name in MINE or "*" in name or "NAME" in name:
                continue
            places = [ROOT / name, ROOT / "ztorch" / name, DOCS / name, *(ROOT / "ztorch").glob(f"*/{name}"),
                      *(ROOT / "models").glob(name)]
            assert any(p.exists() for p in places), f"{page.name} names {name}, which is not there"
