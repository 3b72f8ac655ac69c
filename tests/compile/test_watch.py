"""The stages of compiling as files, and sizes of memory as users write them."""

from __future__ import annotations

from pathlib import Path

import pytest

import ztorch as zt
from ztorch import layers as L
from ztorch.compile.memory_sizes import byte_count
from ztorch.errors import ConfigError
from ztorch.host.settings import using


def test_each_program_has_files_of_its_own(tmp_path: Path) -> None:
    with using(dump=str(tmp_path)):
        for inputs in (3, 5):
            zt.Sequential([L.Input((inputs,)), L.Dense(2)]).compile("cpu", batch_size=1)
    texts = [path.read_text() for path in sorted(tmp_path.glob("*_00_graph.graph"))]
    assert [f"float32[1, {n}]" in text for text, n in zip(texts, (3, 5), strict=True)] == [True] * 2


@pytest.mark.parametrize("size", ["much", "-1", "1 PB", "9" * 400])
def test_sizes_of_memory_that_are_none(size: str) -> None:
    with pytest.raises(ConfigError, match="not a number of bytes"):
        byte_count("memory_limit", size)
    assert byte_count("memory_limit", " 1.5 kib") == 1536
