"""The time before the first prediction: compiling, storing, and starting from a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.report import Section, duration
from benchmarks.timing import Effort, Timing

ROOT = Path(__file__).parents[1]

# Each prints JSON: seconds of its parts, and what it computed. They import nothing of ours that
# a user's program would not.
_OURS = """
import json, time
t0 = time.perf_counter()
import numpy as np
from benchmarks import peers
t1 = time.perf_counter()
model = peers.mlp()
model.build(); model.get_weights()
t2 = time.perf_counter()
program = model.compile("cpu", batch_size={batch}, threads={threads})
x = np.full(({batch}, 784), 0.5, np.float32)
y = program.predict(x)
t3 = time.perf_counter()
peers.mlp().compile("cpu", batch_size={batch}, threads={threads}).predict(x)
t4 = time.perf_counter()
print(json.dumps(dict(imports=t1 - t0, first=t3 - t2, again=t4 - t3, y=float(y[0, 0]))))
"""
_TORCH = """
import json, time
t0 = time.perf_counter()
import numpy as np, torch
t1 = time.perf_counter()
torch.set_num_threads({threads})
from torch import nn
stored = np.load({weights!r})
parts = []
for k in range(0, 6, 2):
    parts += [nn.Linear(*stored["w%d" % k].shape), nn.ReLU()]
    parts[-2].load_state_dict(dict(weight=torch.from_numpy(stored["w%d" % k].T.copy()),
                                   bias=torch.from_numpy(stored["w%d" % (k + 1)])))
parts[-1] = nn.Softmax(-1)
model = nn.Sequential(*parts)
t2 = time.perf_counter()
x = torch.full(({batch}, 784), 0.5)
with torch.inference_mode():
    y = torch.compile(model)(x)
    t3 = time.perf_counter()
    torch._dynamo.reset()
    torch.compile(model)(x)
    t4 = time.perf_counter()
print(json.dumps(dict(imports=t1 - t0, first=t3 - t2, again=t4 - t3, y=float(y[0, 0]))))
"""
_START = {
    "ztorch": """
import numpy as np, ztorch as zt
p = zt.load({path!r}, threads=1)
print(p.predict(np.full((1, 784), 0.5, np.float32))[0, 0])
""",
    "ONNX Runtime": """
import numpy as np, onnxruntime as ort
o = ort.SessionOptions()
o.intra_op_num_threads = 1
s = ort.InferenceSession({path!r}, o, providers=["CPUExecutionProvider"])
print(s.run(None, dict(x=np.full((1, 784), 0.5, np.float32)))[0][0, 0])
""",
    "torch.export": """
import torch
m = torch.export.load({path!r}).module()
with torch.inference_mode():
    print(float(m(torch.full((1, 784), 0.5))[0, 0]))
""",
    "only NumPy": "import numpy as np; print(np.float32(0))",
    "only Python": "print(0)",
}


def _child(text: str, **environment: str) -> tuple[float, str]:
    """Runs a fresh Python; gives its wall time and the last line it printed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    # An installed package has its bytecode; ours in a checkout writes it in the first turn.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    start = perf_counter()
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True)
    took = perf_counter() - start
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr else "no message")
    return took, done.stdout.strip().splitlines()[-1]


def run_compile(threads: list[int], effort: Effort) -> Section:
    """From a model in memory to its first prediction, in a fresh process and once more."""
    s = Section("compile", "Compiling the MLP, batch 32",
                "LLVM's code generation, about proportional to the code of the products; Python "
                "for the rest. `first` is compiling and the first prediction in a fresh process, "
                "`again` compiling the same model once more there; imports are not included. "
                "PyTorch's cold row starts with an empty cache on disk, its warm row with the "
                "cache of the run before; `again` finds the code in its memory. Ours has no "
                "cache here: it compiles each time.")
    turns = 1 if effort.least <= 3 else 5
    with tempfile.TemporaryDirectory() as tmp:
        stored = str(Path(tmp, "weights.npz"))
        named: dict[str, Any] = {f"w{k}": w for k, w in enumerate(peers.mlp().get_weights())}
        np.savez(stored, **named)
        for n in threads:
            fill = {"batch": 32, "threads": n, "weights": stored}
            cache = 0
            runs_of: dict[str, list[dict[str, float]]] = {}
            for turn in range(turns):
                _note(s, runs_of, "ztorch", _OURS.format(**fill))
                if not peers.module("torch") or peers.no_compiler() or turn >= 3:
                    continue
                cache += 1
                environment = {"TORCHINDUCTOR_CACHE_DIR": str(Path(tmp, f"cache{n}.{cache}"))}
                _note(s, runs_of, "torch.compile, cold cache", _TORCH.format(**fill), **environment)
                _note(s, runs_of, "torch.compile, warm cache", _TORCH.format(**fill), **environment)
            answers = {round(r["y"], 5) for runs in runs_of.values() for r in runs}
            if len(answers) > 1:
                raise SystemExit(f"compiled models disagree: {answers}")
            for who, runs in runs_of.items():
                middle = {k: float(np.median([r[k] for r in runs]))
                          for k in ("imports", "first", "again", "process")}
                s.line({"what": who, "threads": str(n),
                        **{k: duration(v) for k, v in middle.items()}},
                       runs=runs)
    return s


def _note(s: Section, runs_of: dict[str, list[dict[str, float]]], who: str, text: str,
          **environment: str) -> None:
    try:
        took, answer = _child(text, **environment)
        runs_of.setdefault(who, []).append({**json.loads(answer), "process": took})
    except RuntimeError as error:
        s.note(f"{who} is left out: {error}")


# -- artifacts -------------------------------------------------------------------------------------


def _export(folder: Path, s: Section) -> dict[str, Path]:
    """The MLP at batch 1 in every format there is."""
    model = peers.mlp()
    weights = model.get_weights()
    paths = {"ztorch": folder / "mlp.zt"}
    model.compile("cpu", batch_size=1, threads=1).save(paths["ztorch"])
    if peers.write_onnx(weights, 1, folder / "mlp.onnx"):
        paths["ONNX"] = folder / "mlp.onnx"
    torch = peers.module("torch")
    if torch:
        try:
            program = torch.export.export(peers.torch_mlp(weights), (torch.zeros(1, 784),))
            torch.export.save(program, str(folder / "mlp.pt2"))
            paths["torch.export"] = folder / "mlp.pt2"
        except Exception as error:
            s.note(f"torch.export is left out: {type(error).__name__}: {error}")
    return paths


def run_size(threads: list[int], effort: Effort) -> Section:
    """Bytes on disk: the artifact, and the packages without which it does not run."""
    s = Section("size", "Artifact size, MLP 784-512-512-10",
                "the weights, 2.68 MB of float32, which every format holds; ours also holds the "
                "machine code. `runtime` is what must be installed beside Python and NumPy.")
    bare = sum(w.nbytes for w in peers.mlp().get_weights())
    needs = {"ztorch": "ztorch", "ONNX": "onnxruntime", "torch.export": "torch"}
    with tempfile.TemporaryDirectory() as tmp:
        for who, path in _export(Path(tmp), s).items():
            size = path.stat().st_size
            runtime = _installed(needs[who])
            s.line({"format": who, "bytes": f"{size:,}", "beside the weights":
                    f"{size - bare:,} bytes", "runtime":
                    f"{needs[who]}, {runtime / 1e6:,.1f} MB"}, size=size, runtime_bytes=runtime)
    return s


def _installed(package: str) -> int:
    folder = Path(peers.module(package).__file__).parent
    return sum(f.stat().st_size for f in folder.rglob("*")
               if f.is_file() and not any(p.startswith((".", "__pycache__")) for p in
                                          f.relative_to(folder).parts))


def run_start(threads: list[int], effort: Effort) -> Section:
    """A fresh process, from the artifact on disk to the first prediction printed."""
    s = Section("start", "Cold start: fresh process to first prediction, batch 1",
                "starting Python and importing NumPy, shown as separate rows; after that, the "
                "imports of the runtime and reading 2.7 MB. Whole processes, by the wall clock, "
                "interleaved.")
    turns = 3 if effort.least <= 3 else 21
    with tempfile.TemporaryDirectory() as tmp:
        paths = _export(Path(tmp), s)
        paths["ONNX Runtime"] = paths.pop("ONNX", Path())
        runs: dict[str, Callable[[], tuple[float, str]]] = {}
        for who, text in _START.items():
            if "{path" not in text:
                runs[who] = lambda text=text: _child(text)  # type: ignore[misc]
            elif paths.get(who, Path()).is_file() and (
                    who != "ONNX Runtime" or peers.module("onnxruntime")):
                filled = text.format(path=str(paths[who]))
                runs[who] = lambda text=filled: _child(text)  # type: ignore[misc]
        took: dict[str, list[float]] = {who: [] for who in runs}
        answers: dict[str, float] = {}
        for turn in range(turns + 1):
            for who, start in runs.items():
                seconds, answer = start()
                if turn:  # the first turn writes bytecode and warms the disk cache
                    took[who].append(seconds)
                answers[who] = float(answer)
    mine = answers["ztorch"]
    errors = [abs(a / mine - 1) for who, a in answers.items() if not who.startswith("only")]
    peers.checked("first prediction", 1e-4, ztorch=max(errors))
    base = np.array(took["ztorch"])
    timings = [_processes(who, np.array(t), base) for who, t in took.items()]
    s.compared("process", 1, timings, max(errors))
    s.names = ["ztorch", *(n for n in s.names if n != "ztorch")]
    return s


def _processes(who: str, took: np.ndarray, base: np.ndarray) -> Timing:
    p10, middle, p90 = (float(p) for p in np.percentile(took, (10, 50, 90)))
    low, ratio, high = (float(p) for p in np.percentile(took / base, (10, 50, 90)))
    return Timing(who, middle, p10, p90, middle, middle, ratio, low, high, len(took), 1)

