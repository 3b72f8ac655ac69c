"""ztorch demo: trains, exports, and predicts in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ztorch.commands import data
from ztorch.commands.train import compiled, format_scores
from ztorch.errors import ZtorchError
from ztorch.sources.find import find


def demo(out: str | None, epochs: int | None, device: str, threads: int | None) -> None:
    """Trains on the digits that come with ztorch, exports, and predicts in a new process."""
    data.need_writable(out, (".zt",))
    recipe = find("digits_mlp")
    train_set, (x, y) = data.read_training("digits")[:2]  # type: ignore[misc]
    start = time.perf_counter()
    program = compiled(recipe, device, threads=threads)
    print(f"1. Compiled {program.name} for {program.device}: forward, loss, backward and optimizer "
          f"as one library of {len(program.executable.code):,} bytes, in "
          f"{time.perf_counter() - start:.1f} s")
    start = time.perf_counter()
    print(f"2. Training on {len(train_set[0])} handwritten digits:")
    program.fit(*train_set, epochs=epochs or recipe.epochs)
    scores = program.evaluate(x, y, verbose=0, return_dict=True)
    print(f"   {program.epochs_trained} epochs in {time.perf_counter() - start:.1f} s; on {len(x)} "
          f"other digits: {format_scores(scores)}")
    with tempfile.TemporaryDirectory(prefix="ztorch-demo-") as folder:
        file = out or os.path.join(folder, "digits.zt")
        program.save(file)
        print(f"3. Exported to {file}: {Path(file).stat().st_size:,} bytes, with weights and "
              "optimizer, so it can go on training")
        predicted = _predict_in_new_process(file, x, folder)
    if not np.array_equal(predicted, program.predict(x)):
        raise ZtorchError("the artifact predicts other numbers than the program it was made from; "
                          "please report this")
    print("4. A fresh process without the compiler loaded it and predicts the same, bit for bit:")
    k = int(np.flatnonzero(predicted.argmax(1) == y)[7])
    caption = f"-> {predicted[k].argmax()}, {predicted[k].max():.1%} sure"
    print(_drawing(x[k, :, :, 0], caption))
    print(f"Next: ztorch inspect {out}" if out else
          "Next: ztorch demo --out digits.zt, then ztorch inspect digits.zt")


_PREDICT = """
import sys
for compiler in ("llvmlite", "jinja2"):
    sys.modules[compiler] = None
import numpy, ztorch
numpy.save(sys.argv[3], ztorch.load(sys.argv[1]).predict(numpy.load(sys.argv[2])))
"""


def _predict_in_new_process(artifact: str, x: np.ndarray, folder: str) -> np.ndarray:
    x_file, y_file = os.path.join(folder, "x.npy"), os.path.join(folder, "y.npy")
    np.save(x_file, x)
    root = str(Path(__file__).parents[2])  # of this ztorch, installed or not
    code = f"import sys; sys.path.insert(0, {root!r})\n{_PREDICT}"
    result = subprocess.run([sys.executable, "-c", code, artifact, x_file, y_file],
                            capture_output=True, text=True, check=False)
    if result.returncode:
        raise ZtorchError(f"the fresh process failed:\n{result.stderr}")
    return np.load(y_file)


def _drawing(pixels: np.ndarray, caption: str) -> str:
    shades = " .:-=+*#%@"
    rows = ["".join(shades[int(p * (len(shades) - 1))] * 2 for p in row) for row in pixels]
    rows[len(rows) // 2] += f"    {caption}"
    return "\n".join(f"      {row}" for row in rows)
