"""Files with rows for each input and output of a model, by name: NPZ and JSON lines."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztorch.data.json_lines import Rows, is_json_lines, read_json_lines, to_json_lines
from ztorch.errors import ConfigError, DataError
from ztorch.files.atomic import write_atomic

if TYPE_CHECKING:
    from ztorch.data import Pair
    from ztorch.model.model import Model
    from ztorch.program.program import Program

Shapes = dict[str, tuple[int, ...]]


class PortShapes(NamedTuple):
    """The shapes of rows of inputs and outputs by name; the name of a single one is empty."""

    inputs: Shapes
    outputs: Shapes

    @property
    def several(self) -> bool:
        """Whether there are several inputs or outputs."""
        return len(self.inputs) > 1 or len(self.outputs) > 1

    @property
    def x(self) -> tuple[int, ...] | None:
        """The shape of a single input; None if there are several."""
        return self.inputs.get("")


def of_model(model: Model) -> PortShapes:
    """The shapes of a model."""
    return PortShapes({name: x.row_shape for name, x in model.inputs_by_name.items()},
                      model.output_rows())


def of_program(program: Program) -> PortShapes:
    """The shapes of a program."""
    predict = program.executable.functions["predict"]
    return PortShapes(*({port[2:]: tuple(t.shape[1:]) for port, t in side.items()
                         if port[0] == role}
                        for role, side in (("x", predict.inputs), ("y", predict.outputs))))


def read(path: str, shapes: PortShapes) -> tuple[Any, Any]:
    """x and y of an NPZ file or of JSON lines; "-" is JSON lines on standard input. Arrays have the
    names of inputs and outputs, or x/NAME and y/NAME if an input and an output share a name. y
    holds the outputs that the file has."""
    from ztorch.data.numpy_files import read_arrays

    arrays: dict[str, Rows]
    if path == "-" or is_json_lines(path):
        arrays = read_json_lines(sys.stdin.buffer.read() if path == "-" else path)
    elif path.lower().endswith(".npz"):
        arrays = dict(read_arrays(path))
    else:
        raise ConfigError(f"the model has several inputs or outputs, and {path} has no names for "
                          f"them; use an .npz file: {_savez_call(shapes)}; or a .jsonl")

    def select(role: str, names: Shapes) -> dict[str, Rows]:
        keys = {name: next((key for key in (f"{role}/{name}", name or role) if key in arrays), None)
                for name in names}
        return {name: arrays[key] for name, key in keys.items() if key is not None}

    x, y = select("x", shapes.inputs), select("y", shapes.outputs)
    if missing := [name or "x" for name in shapes.inputs if name not in x]:
        raise DataError(f"{path} has no array {missing[0]!r}; it has "
                        f"{', '.join(arrays) or 'none'}: {_savez_call(shapes)}")
    x = {name: _with_row_shape(array, shapes.inputs[name]) for name, array in x.items()}
    return x.get("", x), y.get("", y) if y else None


def _with_row_shape(array: Rows, shape: tuple[int, ...]) -> Rows:
    """Reshapes flat rows to the shape of the input; returns other arrays unchanged."""
    if isinstance(array, list):
        return array
    flat = array.ndim == 2 and array.shape[1] == int(np.prod(shape))
    return array.reshape(-1, *shape) if flat else array


def read_training(path: str, shapes: PortShapes) -> Pair:
    """x and y to train on."""
    x, y = read(path, shapes)
    if y is None:
        raise DataError(f"{path} holds nothing to learn: {_savez_call(shapes)}")
    return x, y


def targets_of(y: Any, program: Program) -> Any:
    """The arrays of y that the program's losses take, if y has names."""
    train = program.executable.functions.get("train")
    if train is None or not isinstance(y, dict):
        return y
    return {name: array for name, array in y.items() if f"y/{name}" in train.inputs}


def write(path: str | None, outputs: Mapping[str, Rows]) -> None:
    """Writes several outputs to an NPZ file or as JSON lines."""
    if path is not None and is_json_lines(path):
        write_atomic(path, to_json_lines(outputs).encode())
        return
    if path is None or not path.endswith(".npz"):
        raise ConfigError(f"the program gives several outputs ({', '.join(outputs)}); write them "
                          "to an .npz file with -o FILE.npz, or to a .jsonl")
    if ragged := [name for name, rows in outputs.items() if isinstance(rows, list)]:
        raise ConfigError(f"cannot write {path}: rows of {ragged[0]!r} differ in size; write them "
                          "to a .jsonl")
    data = io.BytesIO()
    np.savez(data, **outputs)  # type: ignore[arg-type]
    write_atomic(path, data.getvalue())


def _savez_call(shapes: PortShapes) -> str:
    """The NumPy call that writes such a file, for error messages."""
    names = [name or role for role, side in (("x", shapes.inputs), ("y", shapes.outputs))
             for name in side]
    return f"numpy.savez(path, {', '.join(f'{name}=...' for name in dict.fromkeys(names))})"
