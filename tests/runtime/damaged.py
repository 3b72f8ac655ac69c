"""Artifacts that are changed, and the errors that loading them raises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ztorch as zt
from tests.cases.artifacts import (
    Manifest,
)
from ztorch.errors import ArtifactError


def refuse(tmp_path: Path, data: bytes, message: str,
           error: type[Exception] = ArtifactError) -> None:
    path = tmp_path / "bad.zt"
    path.write_bytes(data)
    with pytest.raises(error, match=message) as caught:
        zt.load(path)
    assert "bad.zt" in str(caught.value) and len(str(caught.value)) < 600


def spec(m: Manifest) -> dict[str, Any]:
    return m["targets"][0]["spec"]
