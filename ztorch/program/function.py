"""Functions of tensors in native code, as written by `zt.export`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch import dispatch
from ztorch.arguments import checked
from ztorch.dtypes import to_storage
from ztorch.errors import ArtifactError, ConfigError, DataError
from ztorch.feed.call_pool import CallPool
from ztorch.feed.columns import as_array, check_whole
from ztorch.program.weight_access import Path
from ztorch.runtime.buckets import BATCH, Buckets
from ztorch.runtime.spec import ARGUMENT, CALL

if TYPE_CHECKING:
    from ztorch.runtime.loaded_program import LoadedProgram
    from ztorch.runtime.snapshot import Metadata


class LoadedFunction:
    """A function of tensors: the result of `zt.load_function`. Safe to call from several threads.

    Args:
        executable: The loaded code.
        metadata: The file's description of the function.
    """

    def __init__(self, executable: LoadedProgram, metadata: Metadata):
        self.executable = executable
        self.metadata = metadata
        self._calls = CallPool(executable, Buckets({BATCH: (1,)}))

    @property
    def __name__(self) -> str:
        return self.metadata.name

    @property
    def device(self) -> str:
        """The device on which it runs."""
        return self.executable.device

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of its arguments, in order."""
        return self.metadata.arguments or ()

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Computes the results.

        Args:
            *args: Arrays, or anything NumPy reads; or tensors, which stay on the device.
            **named: Arguments by name.

        Returns:
            An array, or a tuple or dict of arrays, as the function returned them; tensors if any
            argument is a tensor.

        Raises:
            DataError: An argument is missing, has another shape, or holds numbers that its integers
                cannot be.
        """
        by_name = self._by_name(args, named)
        ports = {ARGUMENT + name: x for name, x in by_name.items()}
        if any(dispatch.is_tensor(x) for x in by_name.values()):
            return self._as_returned(dispatch.call_function(self.executable, ports))
        with self._calls.borrow(CALL) as call:
            for port, own in call.inputs.items():
                label = f"{self.__name__}: argument {port.removeprefix(ARGUMENT)!r}"
                array = as_array(ports[port], label)
                if array.shape != own.shape:
                    raise DataError(f"{label} has shape {array.shape}; this function takes "
                                    f"{own.shape}")
                d = call.function.inputs[port].dtype
                if d.is_int and array.size:
                    check_whole(np.atleast_1d(array), d, None, label)
                stored = to_storage(d, array)
                if not call.read_from(port, stored):
                    own[...] = stored
            call()
            return self._as_returned({port: y.copy() for port, y in call.outputs.items()})

    def __repr__(self) -> str:
        f = self.executable.functions[CALL]
        shown = (f"{n}: {f.inputs[p].dtype}{list(f.inputs[p].shape)}" if p in f.inputs else n
                 for n in self.arguments for p in [ARGUMENT + n])
        return f"<function {self.__name__}({', '.join(shown)}) on {self.device}>"

    def _by_name(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        names = self.arguments
        by_name = {**dict(zip(names, args, strict=False)), **named}
        if len(args) > len(names) or by_name.keys() != set(names) or (
                len(args) + len(named) != len(names)):
            raise DataError(f"{self.__name__} takes {', '.join(names) or 'no argument'}")
        return by_name

    def _as_returned(self, outputs: dict[str, Any]) -> Any:
        if "y" in outputs:
            return outputs["y"]
        if self.metadata.outputs_are == "dict":
            return {port[2:]: y for port, y in outputs.items()}
        return tuple(outputs.values())


@checked
def load_function(path: Path, threads: int | None = None) -> LoadedFunction:
    """Loads a function of tensors written by `zt.export`; needs neither source nor compiler.

    Args:
        path: The file, which ends in .zt.
        threads: Maximum number of workers of a call on the CPU; None: all cores available to this
            process. Default: `None`.

    Returns:
        The function.

    Raises:
        ArtifactError: The file is damaged, or is not an artifact.
        ConfigError: The file holds a model.
        DeviceError: No device of this machine runs its code.

    Examples:
        >>> import os, tempfile, numpy as np, ztorch as zt
        >>> path = os.path.join(tempfile.mkdtemp(), "norm.zt")
        >>> files = zt.export(lambda x: zt.ops.norm(x, axis=-1), path, "f32[2, 2]")
        >>> zt.load_function(path)([[3, 4], [6, 8]])
        array([ 5., 10.], dtype=float32)
    """
    from ztorch.runtime.load import read_artifact
    from ztorch.runtime.start import start

    where = os.fspath(path)
    spec, code, params, metadata, _ = read_artifact(where)
    if metadata.arguments is None:
        raise ConfigError(f"{where} holds a model, not a function; zt.load({where!r}) loads it")
    try:
        return LoadedFunction(start(spec, code, params, threads), metadata)
    except ArtifactError as error:  # about the library in it
        raise ArtifactError(f"{where}: {error}") from None
