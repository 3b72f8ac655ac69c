"""Arrays of several inputs and outputs, by name, in one NPZ file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztorch.errors import ConfigError, DataError
from ztorch.files.atomic import write_atomic

if TYPE_CHECKING:
    from ztorch.data import Pair
    from ztorch.model.model import Model
    from ztorch.program.program import Program

Shapes = dict[str, tuple[int, ...]]


class Ports(NamedTuple):
    """The shapes of inputs and outputs by name; the name is empty where there is only one."""

    inputs: Shapes
    outputs: Shapes

    @property
    def several(self) -> bool:
        return len(self.inputs) > 1 or len(self.outputs) > 1

    @property
    def x(self) -> tuple[int, ...] | None:
        """The shape of the only input."""
        return self.inputs.get("")


def of_model(model: Model) -> Ports:
    """Those of a model."""
    model.build()
    shapes = model.output_shape if model.output_names != [""] else {"": model.output_shape}
    return Ports({name: one.shape for name, one in model.inputs.items()}, dict(shapes))


def of_program(program: Program) -> Ports:
    """Those of a program."""
    predict = program.executable.functions["predict"]
    return Ports(*({port[2:]: tuple(t.shape[1:]) for port, t in side.items()}
                   for side in (predict.inputs, predict.outputs)))


def read(path: str, ports: Ports) -> tuple[Any, Any]:
    """x and y of an NPZ file: arrays named as inputs and outputs are (or x/NAME and y/NAME, where
    an input and an output share a name). y holds those outputs that the file does."""
    if not path.lower().endswith(".npz"):
        raise ConfigError(f"the model has several inputs or outputs, and {path} has no names for "
                          f"them; use an .npz file: {_how(ports)}")
    from ztorch.data.numpy_files import read_arrays

    arrays = read_arrays(path)

    def found(role: str, shapes: Shapes) -> dict[str, np.ndarray]:
        names = {name: next((n for n in (f"{role}/{name}", name or role) if n in arrays), None)
                 for name in shapes}
        return {name: arrays[n] for name, n in names.items() if n is not None}

    x, y = found("x", ports.inputs), found("y", ports.outputs)
    if lacks := [name or "x" for name in ports.inputs if name not in x]:
        raise DataError(f"{path} has no array {lacks[0]!r}; it has {', '.join(arrays) or 'none'}: "
                        f"{_how(ports)}")
    x = {name: a.reshape(-1, *ports.inputs[name]) if a.ndim == 2 and a.shape[1] == int(
        np.prod(ports.inputs[name])) else a for name, a in x.items()}
    return x.get("", x), y.get("", y) if y else None


def training(path: str, ports: Ports) -> Pair:
    """x and y to train on."""
    x, y = read(path, ports)
    if y is None:
        raise DataError(f"{path} holds nothing to learn: {_how(ports)}")
    return x, y


def aimed_at(y: Any, program: Program) -> Any:
    """The targets that the program's losses take, where y has names."""
    trains = program.executable.functions.get("train")
    if trains is None or not isinstance(y, dict):
        return y
    return {name: a for name, a in y.items() if f"y/{name}" in trains.inputs}


def write(path: str | None, outputs: dict[str, np.ndarray]) -> None:
    """Writes several outputs to an NPZ file."""
    if path is None or not path.endswith(".npz"):
        raise ConfigError(f"the program gives several outputs ({', '.join(outputs)}); write them "
                          "to an .npz file with -o FILE.npz")
    data = io.BytesIO()
    np.savez(data, **outputs)  # type: ignore[arg-type]
    write_atomic(path, data.getvalue())


def _how(ports: Ports) -> str:
    names = [name or role for role, shapes in (("x", ports.inputs), ("y", ports.outputs))
             for name in shapes]
    return f"numpy.savez(path, {', '.join(f'{name}=...' for name in dict.fromkeys(names))})"
