"""torch.compile on a GPU, for models of the zoo. What it makes of one may take minutes, so a child
compiles first, in limited time, and leaves the kernels in PyTorch's cache."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks import gpu_peers, peers

LIMIT = 40.0  # seconds for which a child compiles; a whole run has ten minutes


def contestant(name: str, function: str, rows: tuple[np.ndarray, np.ndarray],
               run: Callable[[], object]) -> tuple[dict[str, Callable[[], object]], str]:
    """The compiled run by the name of torch.compile, and why it is left out; one of them is empty.

    Args:
        name: The name of the model.
        function: predict or train.
        rows: A batch and its targets.
        run: PyTorch's prediction or step, which does not wait.
    """
    batch = str(len(rows[0]))
    if reason := refusal([sys.executable, "-m", "benchmarks.gpu_compiled", name, function, batch]):
        return {}, f"torch.compile {reason}"
    return {"torch.compile": gpu_peers.waiting(peers.module("torch").compile(run))}, ""


def refusal(command: Sequence[str], limit: float = LIMIT) -> str:
    """What became of a command that compiles; empty if it ended well. One that takes longer is
    ended with all of its own children.

    >>> refusal([sys.executable, "-c", "pass"])
    ''
    """
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             start_new_session=True)
    try:
        _, said = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return f"did not compile in {limit:g} s"
    lines = said.strip().splitlines() or [f"ended with {child.returncode}"]
    return f"failed: {lines[-1]}" if child.returncode else ""


def main(name: str, function: str, batch: int) -> None:
    """Compiles a function of a model, and runs it once."""
    from benchmarks.gpu_models import batch_of

    model = importlib.import_module(f"models.{name}").build()
    x, y = batch_of(model, importlib.import_module(f"models.{name}").LOSS, batch)
    run = gpu_peers.contestants(name, model, x, y, function == "train").alone
    gpu_peers.waiting(peers.module("torch").compile(run))()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
