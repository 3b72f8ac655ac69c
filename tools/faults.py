"""Puts known faults into a copy of the code, one at a time, and says which the inner loop notices.

    python tools/faults.py              # all of them, room by room
    python tools/faults.py ops feed     # those of some rooms

Each fault is a file, a piece of its text that occurs once, and what to write in its place. The tests
are `pytest --few` of the fault's room, which is what people run while they work. A fault that no
test notices is a test that is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Fault(NamedTuple):
    """One change that makes the program wrong."""

    room: str  # whose it is
    file: str  # where
    old: str  # what is there now, once
    new: str  # what is put in its place
    tests: str  # what should notice, below tests/; several parted by spaces


FAULTS = [
    Fault("ops", "ztorch/ops/pooling.py", "if np.min(counts) == np.max(counts):", "if np.min(counts) <= np.max(counts):", "ops"),
    Fault("ops", "ztorch/ops/pooling.py", "constant(1.0 / counts, x.dtype)", "constant(2.0 / counts, x.dtype)", "ops"),
    Fault("graph", "ztorch/graph/movement.py", "(s0 + s * t0, t0 * t)", "(s0 + s, t0 * t)", "graph"),
    Fault("graph", "ztorch/graph/movement.py", "all(s == 1 or n == 1 for", "any(s == 1 or n == 1 for", "graph"),
    Fault("graph", "ztorch/graph/passes.py", 'v.attrs["name"] == name)', 'v.attrs["name"] != name)', "graph"),
    Fault("graph", "ztorch/graph/passes.py", '{"add", "mul", "eq"', '{"add", "sub", "mul", "eq"', "graph"),
    Fault("losses", "ztorch/losses/regression.py", "OPS.where(size <= self.delta,", "OPS.where(size >= self.delta,", "test_losses.py"),
    Fault("losses", "ztorch/losses/regression.py", "- math.log(2.0)", "- math.log(3.0)", "test_losses.py"),
    Fault("losses", "ztorch/losses/regression.py", "EPSILON)) * 100.0", "EPSILON)) * 10.0", "test_losses.py"),
    Fault("metrics", "ztorch/metrics.py", "axis=-1) < self.k", "axis=-1) <= self.k", "test_metrics.py"),
    Fault("metrics", "ztorch/metrics.py", "OPS.cast(y_pred > self.threshold", "OPS.cast(y_pred < self.threshold", "test_metrics.py"),
    Fault("layers", "ztorch/layers/normalization.py", "return first + mean, apart - mean", "return mean, apart - mean", "layers"),
    Fault("layers", "ztorch/layers/normalization.py", "factor = gamma if factor is None else factor * gamma", "factor = gamma if factor is None else factor", "layers"),
    Fault("feed", "ztorch/feed/array_batches.py", "self.steps = -(-self.rows // batch_size)", "self.steps = max(1, self.rows // batch_size)", "feed"),
    Fault("feed", "ztorch/feed/array_batches.py", "epoch], np.uint64)", "0], np.uint64)", "feed"),
    Fault("training", "ztorch/training/loop.py", "self.batches.epoch(call.inputs, program.epochs_trained, self.steps)", "self.batches.epoch(call.inputs, 0, self.steps)", "training program callbacks"),
    Fault("training", "ztorch/training/history.py", "self._epochs_of.setdefault(name, []).append(epoch)", "self._epochs_of.setdefault(name, []).append(0)", "training"),
    Fault("training", "ztorch/training/loop.py", "self.history.interrupted = True", "self.history.interrupted = False", "training program callbacks"),
    Fault("weights", "ztorch/weights/matching.py", "p.shapes == m.shapes]", "p.shapes != ()]", "weights"),
    Fault("files", "ztorch/files/atomic.py", "if target.exists() and not target.is_file():", "if target.exists() and target.is_symlink():", "files"),
    Fault("codegen", "ztorch/codegen/object_cache.py", "if check != hashlib.sha256(key + code).digest():", "if len(check) != DIGEST:", "codegen/test_object_cache.py"),
    Fault("codegen", "ztorch/codegen/object_cache.py", "for _, bytes_, path in sorted(files):", "for _, bytes_, path in sorted(files)[::-1]:", "codegen/test_object_cache.py"),
    Fault("codegen", "ztorch/codegen/object_cache.py", 'digest.update(len(raw).to_bytes(8, "little"))', "pass", "codegen/test_object_cache.py"),
    Fault("codegen", "ztorch/codegen/assemble.py", "(text, row(target), _llvm_identity(), _source())", "(text, row(target), _source())", "codegen/test_object_cache.py"),
    Fault("templates", "templates/llvm/instr.ll.j2", "icmp slt", "icmp sle", "codegen/test_render.py"),
    Fault("optimizers", "ztorch/optimizers/sgd.py", "self.momentum - down)", "self.momentum + down)", "test_optimizers.py"),
    Fault("initializers", "ztorch/initializers/variance_scaling.py", "math.sqrt(3 * variance)", "math.sqrt(2 * variance)", "test_initializers.py"),
]


def place(fault: Fault, copy: Path) -> str:
    """Writes a fault into a copy of the code, and gives the text that was there."""
    path = copy / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        raise SystemExit(f"{fault.file} holds {fault.old!r} {text.count(fault.old)} times, not once: "
                         "the table in tools/faults.py is out of date")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    return text


def fails(tests: str, copy: Path) -> bool:
    """Whether the inner loop of a room fails."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--few", "-x", "-p", "no:cacheprovider",
         *(f"tests/{name}" for name in tests.split())],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True, check=False)
    if done.returncode > 2:  # below zero: the process crashed, which is noticed
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    return done.returncode != 0


def main(rooms: list[str]) -> int:
    chosen = [f for f in FAULTS if not rooms or f.room in rooms]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copy = Path(folder, "copy")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache"))
        for tests in dict.fromkeys(f.tests for f in chosen):
            if fails(tests, copy):
                raise SystemExit(f"{tests}: these tests fail without any fault, so they tell nothing")
        for fault in chosen:
            text = place(fault, copy)
            caught = fails(fault.tests, copy)
            (copy / fault.file).write_text(text, encoding="utf-8")
            missed += not caught
            print(f"{'caught' if caught else 'MISSED'}  {fault.room:12} {fault.file}: "
                  f"{fault.old!r} -> {fault.new!r}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
