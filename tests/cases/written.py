"""Folders of small text files, such as those of a made-up /sys."""

from __future__ import annotations

from pathlib import Path


def made_up(tmp_path: Path, files: dict[str, str]) -> str:
    """A folder with these files (path: text); returns its path."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return str(tmp_path)
