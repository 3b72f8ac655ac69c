"""Arrays of the caller that take the results of a prediction: `out=`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ztorch.arguments import need_out_array, need_separate, overlap
from ztorch.errors import ConfigError, Unsupported
from ztorch.feed.adapter import Columns, rows_of
from ztorch.feed.call_pool import run_writing
from ztorch.feed.columns import DIRECT_BYTES
from ztorch.runtime.loaded_program import BoundCall
from ztorch.runtime.snapshot import Metadata
from ztorch.runtime.spec import TensorSpec


def predict_into(out: Any, call: BoundCall, columns: Columns, metadata: Metadata) -> Any:
    """Runs a call that has its inputs, and writes the result to arrays of the caller.

    Args:
        out: The arrays, in the form of the model's outputs. Returned.
        call: The call.
        columns: The inputs. If one of them overlaps with an array to write, the result is copied
            there after the run.
        metadata: That of the program.
    """
    rows = rows_of(columns)
    arrays = arrays_by_port(out, call.outputs, rows, metadata)
    direct = {} if overlap(arrays.values(), columns.values()) else {
        port: array for port, array in arrays.items()
        if array.nbytes >= DIRECT_BYTES and len(call.outputs[port]) == rows}
    written = run_writing(call, direct)
    for port, array in arrays.items():
        if port not in written:
            array[...] = call.outputs[port][:rows]
    return out


def arrays_by_port(out: Any, results: Mapping[str, np.ndarray | TensorSpec], rows: int,
                   metadata: Metadata) -> dict[str, np.ndarray]:
    """The caller's arrays by output port.

    Args:
        out: One array, or a list or dict of them, in the form of the model's outputs.
        results: The outputs of a batch by port.
        rows: Rows of the prediction.
        metadata: That of the program.

    Raises:
        ConfigError: They do not fit the outputs.
        Unsupported: The sizes of the results vary.
    """
    if metadata.open_axes:
        raise Unsupported("out=...: the sizes of this program's results vary")
    ports = list(results)
    if ports == ["y"]:
        arrays = {"y": out}
    elif metadata.outputs_are == "dict":
        names = [port[2:] for port in ports]
        if not isinstance(out, Mapping) or sorted(out) != sorted(names):
            raise ConfigError(f"out=... must be a dict with the arrays {', '.join(names)}")
        arrays = {port: out[port[2:]] for port in ports}
    else:
        if not isinstance(out, (list, tuple)) or len(out) != len(ports):
            raise ConfigError(f"out=... must be a list of {len(ports)} arrays")
        arrays = dict(zip(ports, out, strict=True))
    for port, array in arrays.items():
        result = results[port]
        numbers = result.dtype if isinstance(result, np.ndarray) else result.dtype.numpy
        need_out_array(array, (rows, *result.shape[1:]), numbers)
    need_separate([*arrays.values()])
    return arrays
