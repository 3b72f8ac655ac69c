"""The tuner's memory: files, machines, damage, and two processes at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import ztorch as zt
from tests.tune.small_models import LEVEL, product_of, schedules, small, tuned
from ztorch.codegen.targets import TARGETS
from ztorch.compile import tuned_files
from ztorch.errors import ConfigError, FileError
from ztorch.tune import exchange


def test_only_schedules_measured_on_the_same_machine_are_used() -> None:
    target = TARGETS[LEVEL]
    functions, kernel, other = product_of(small(), target)
    tuned_files.write([
        tuned(kernel, other, target, version="0.0.9"), tuned(kernel, other, target, threads=999),
        tuned(kernel, other, target, machine="avx2 zen9"), tuned(kernel, other, target, work="0" * 64)])
    assert len(tuned_files.names()) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not any(flag for _, flag in schedules(functions, target).values())
        assert schedules(functions, target, threads=999)[kernel.key] == (other, True)
        tuned_files.write([tuned(kernel, other, target)])
        assert schedules(functions, target)[kernel.key] == (other, True)
        asked = schedules(functions, target, schedules={kernel.key: kernel.proposal()})
        assert asked[kernel.key] == (kernel.proposal(), False)


DAMAGED = [
    (b"", "is not a schedule of `ztorch tune`"), (b"\x00\xff" * 40, "is not a schedule"),
    (b"[]", "must be an object"), (b"{}", "work is missing"), (b"[" * 20000, "is not a schedule"),
    (b" " * 70000, "more than 65536 bytes"),
    ({"threads": -1}, "threads is -1"), ({"work": "../x"}, "work is"), ({"seconds": 1e9}, "seconds is"),
    ({"schedule": "product tile(rows=99, vectors=2) block(rows=1, depth=0, pack=0) prefetch(0) unroll(4) epilogue(inline=1)"},
     r"tile\(rows=99\) must be one of"),
    ({"schedule": "transpose lanes(8) abreast(1)"}, "its kinds are product"), ({"schedule": "fast"}, "no schedule of kind"),
]


def test_a_file_that_is_damaged_or_does_not_fit_is_ignored_with_the_reason(folder: Path) -> None:
    target = TARGETS[LEVEL]
    functions, kernel, other = product_of(small(), target)
    right = tuned(kernel, other, target)
    for change, reason in DAMAGED:
        tuned_files.write([right])
        content = change if isinstance(change, bytes) else json.dumps({**right.to_json(), **change}).encode()
        (folder / right.file_name).write_bytes(content)
        with pytest.warns(UserWarning, match=f"is ignored: .*{reason}"):
            assert schedules(functions, target)[kernel.key] == (kernel.proposal(), False)


def test_schedules_round_trip_through_files(folder: Path, tmp_path: Path) -> None:
    target, path = TARGETS[LEVEL], tmp_path / "s.json"
    _, kernel, other = product_of(small(), target)
    kernels = [tuned(kernel, other, target), tuned(kernel, other, target, threads=3)]
    tuned_files.write(kernels)
    assert exchange.export_file(path) == 2 and exchange.clear() == 2 and exchange.stored_kernels() == []
    assert exchange.import_file(path) == 2
    assert sorted(exchange.stored_kernels(), key=repr) == sorted(kernels, key=repr)
    (folder / "damaged.json").write_text("{")
    with pytest.warns(UserWarning, match="damaged.json is not a schedule"):
        assert len(exchange.stored_kernels()) == 2
    data = json.loads(path.read_text())
    for change in ("{", "[]", json.dumps({**data, "format": "2"}),
                   *(json.dumps({**data, "kernels": [{**data["kernels"][0], **change}]})
                     for change in ({"schedule": "x"}, {"title": "\x1b[2J"}, {"machine": "a\nb"}))):
        path.write_text(change)
        with pytest.raises((FileError, ConfigError), match=r"holds no schedules|no schedule of kind"):
            exchange.import_file(path)
    with pytest.raises(ConfigError, match=r"schedules\.json"):
        exchange.export_file(tmp_path / "s.csv")


SCRIPT = """
import sys, warnings, ztorch as zt
from ztorch.tune import search
warnings.simplefilter("error")
search._seconds = lambda kernel, schedules, *_: [1e-6 / (k + 1) for k in range(len(schedules))]
L = zt.layers
model = zt.Sequential([L.Input((19,)), L.Dense(37, activation="gelu"), L.Dense(5)])
for again in (False, True, True):
    report = model.tune(batch_size=7, threads=1, again=again)
print(*sorted(k.file_name for k in (*report.kernels, *report.plans)))
"""


def test_two_processes_tune_the_same_at_once(tmp_path: Path) -> None:
    """They name the same kernels alike, whatever the seed of their hashes, and no file is torn."""
    root = str(Path(zt.__file__).parents[1])
    running = [subprocess.Popen([sys.executable, "-c", SCRIPT], text=True, stdout=subprocess.PIPE,
                                env={**os.environ, "PYTHONPATH": root, "ZTORCH_CACHE": str(tmp_path),
                                     "PYTHONHASHSEED": str(seed)}) for seed in (1, 2)]
    first, second = (p.communicate()[0].split() for p in running)
    assert [p.returncode for p in running] == [0, 0] and first == second and len(first) > 1
    assert sorted(tuned_files.names()) == sorted(first)
    assert len(exchange.stored_kernels()) == len(first)
