"""The small tools that look at files: contents of a wheel, whitespace, messages of commits."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools.commit_message import fault
from tools.packages import ROOT, main, sdist_faults, wanted, wheel_faults
from tools.whitespace import faults


def test_a_wheel_has_exactly_the_required_files() -> None:
    files = wanted()
    assert {"ztorch/py.typed", "ztorch/templates/llvm/instr.ll.j2", "ztorch/models/digits_mlp.py"} <= files
    assert not wheel_faults(files)
    assert wheel_faults(files - {"ztorch/py.typed"}) == ["the wheel lacks ztorch/py.typed"]
    assert wheel_faults(files | {"tools/rooms.py"}) == ["the wheel holds tools/rooms.py"]


def test_a_sdist_has_no_tests() -> None:
    good = {"ztorch/cli.py", "templates/a", "models/b", "cli.py", "pyproject.toml", "README.md", "LICENSE"}
    assert not sdist_faults(good)
    assert sdist_faults({*good, "tests/x.py"} - {"cli.py"}) == ["the sdist lacks cli.py", "the sdist holds tests"]


def test_archives_are_compared_with_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    """Names in a sdist begin with a folder of its own."""
    monkeypatch.setattr("tools.packages.wanted", lambda: {"ztorch/cli.py"})
    with zipfile.ZipFile(tmp_path / "z.whl", "w") as wheel:
        wheel.writestr("ztorch/cli.py", b"")
    names = ["LICENSE", "ztorch/x", "templates/x", "models/x", "cli.py", "pyproject.toml", "README.md"]
    for lacking in (0, 1):
        with tarfile.open(tmp_path / "z.tar.gz", "w:gz") as sdist:
            for name in names[lacking:]:
                sdist.addfile(tarfile.TarInfo(f"z-1.0/{name}"))
        if lacking:
            with pytest.raises(SystemExit, match=r"^the sdist lacks LICENSE$"):
                main(str(tmp_path))
        else:
            main(str(tmp_path))
        assert "z.whl: 1 files" in capsys.readouterr().out


@pytest.mark.parametrize(("before", "fault", "after"), [
    ("a\n", "", "a\n"), ("", "", ""), ("a \nb", "gone now", "a\nb\n"), ("a\n\n", "gone now", "a\n"),
    ("a\n<<<<<<< HEAD\n", "merge conflict", "a\n<<<<<<< HEAD\n"), ("a\r\n", "Windows", "a\r\n"),
])
def test_whitespace(before: str, fault: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(before.encode())
    told = faults(path)
    assert (fault in told) if fault else not told
    assert path.read_bytes() == after.encode()


def test_the_files_of_the_checkout_pass() -> None:
    names = [str(p) for folder in ("docs", "examples", "tools", ".ci") for p in (ROOT / folder).rglob("*")
             if p.is_file() and p.suffix in (".py", ".md", "")]
    ran = subprocess.run([sys.executable, ROOT / "tools" / "whitespace.py", *names], check=False, text=True,
                         capture_output=True)
    assert ran.returncode == 0 and not ran.stdout


@pytest.mark.parametrize(("message", "told"), [
    ("A" * 72 + "\n\nWhy.\n", ""), ("# of Git\nA subject\n# of Git\n", ""),
    ("A subject\n\n# ------------------------ >8 ------------------------\ndiff --git\n" + "A" * 73, ""),
    ("A" * 73, "73 characters; 72 are"), ("A subject\nthat goes on\n", "no blank line"), ("# of Git\n\n", "no subject"),
])
def test_messages_of_commits(message: str, told: str) -> None:
    assert (told in fault(message)) if told else not fault(message)


@pytest.mark.parametrize(("message", "status"), [("A subject\n\nWhy.\n", 0), ("A subject\nWhy.\n", 1)])
def test_the_hook_stops_a_commit(message: str, status: int, tmp_path: Path) -> None:
    path = tmp_path / "COMMIT_EDITMSG"
    path.write_text(message)
    ran = subprocess.run([sys.executable, ROOT / "tools" / "commit_message.py", path], check=False, text=True,
                         capture_output=True)
    assert ran.returncode == status and bool(ran.stderr) == bool(status)
