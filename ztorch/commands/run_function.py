"""ztorch run FUNCTION.zt: calls a function of tensors with arrays from files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ztorch.commands import data, named_arrays
from ztorch.data.numpy_files import read_arrays
from ztorch.program.function import load_function


def run_function(path: str, sources: Sequence[str], out: str | None, threads: int | None) -> None:
    """Calls the function in a file, and writes its results.

    Args:
        path: The file.
        sources: An .npz with an array for each argument, or files and numbers in their order.
        out: The file to write; None prints.
        threads: Worker threads on a CPU.
    """
    function = load_function(path, threads)
    if len(sources) == 1 and sources[0].lower().endswith(".npz"):
        result = function(**read_arrays(sources[0]))
    else:
        result = function(*map(_argument, sources))
    if isinstance(result, np.ndarray):
        return data.write(out, np.atleast_1d(result))
    named_arrays.write(out, result if isinstance(result, dict) else
                       {f"y{k}": y for k, y in enumerate(result)})


def _argument(source: str) -> Any:
    """A number, or the array in a file."""
    try:
        return float(source)
    except ValueError:
        return data.read_rows(source)
