"""The weights of a program: reading, setting, and files of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ztorch.arguments import checked
from ztorch.dtypes import dtype, from_storage
from ztorch.errors import WeightsError
from ztorch.feed.columns import as_array
from ztorch.locks import new_lock
from ztorch.program.native_calls import NativeCalls

if TYPE_CHECKING:
    from ztorch.layers.weight import Weight
    from ztorch.program.model_weights import ModelWeights
    from ztorch.program.weight_tables import ProgramWeights
    from ztorch.runtime.loaded_program import LoadedProgram
    from ztorch.runtime.snapshot import Metadata

Path = str | os.PathLike[str]


class WeightAccess(NativeCalls):
    """A program whose weights can be read, set, saved and loaded."""

    def __init__(self, executable: LoadedProgram, metadata: Metadata,
                 weights: Mapping[str, Weight] | None = None):
        super().__init__(executable, metadata)
        self.fit_lock = new_lock()  # held while `fit` runs
        self.model_weights: ModelWeights | None = None
        if weights is not None:
            from ztorch.program.model_weights import ModelWeights

            self.model_weights = ModelWeights(executable, self.fit_lock, weights)

    @property
    def weight_names(self) -> list[str]:
        """The names of the weights, `layer/kernel`, in Keras' order."""
        order = {w.name: k for k, w in enumerate(self.metadata.weights)}
        names = [n for n, spec in self.executable.states.items() if spec.role == "weight"]
        return sorted(names, key=lambda n: order.get(n, len(order)))

    @property
    def weights(self) -> ProgramWeights:
        """The weights by name, as `zt.Tensor`s on the program's device. Reading an item returns the
        current weight, unaffected by later training; setting an item sets the weight."""
        from ztorch.program.weight_tables import ProgramWeights

        return ProgramWeights(self)

    def weight_arrays(self) -> dict[str, np.ndarray]:
        """Copies of the weights by name; those stored in 16 bits are returned as float32."""
        states = self.executable.states
        arrays = {n: from_storage(states[n].dtype, self.executable.state(n))
                  for n in self.weight_names}
        return {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in arrays.items()}

    def get_weights(self) -> list[np.ndarray]:
        """Copies of the weights in Keras' order; those stored in 16 bits are returned as float32.

        Examples:
            >>> import ztorch as zt
            >>> layers = [zt.layers.Input((4,)), zt.layers.Dense(3)]
            >>> program = zt.Sequential(layers).compile("cpu", batch_size=8)
            >>> [w.shape for w in program.get_weights()]
            [(4, 3), (3,)]
        """
        return list(self.weight_arrays().values())

    @checked
    def set_weights(self, weights: Sequence[Any]) -> None:
        """Replaces all weights; all are checked before any is changed.

        Args:
            weights: An array for each weight, with its shape, in the order of `get_weights`.

        Raises:
            WeightsError: There are more or fewer arrays than weights, or one has another shape.

        Examples:
            >>> import ztorch as zt
            >>> layers = [zt.layers.Input((4,)), zt.layers.Dense(3)]
            >>> program = zt.Sequential(layers).compile("cpu", batch_size=8)
            >>> program.set_weights([w + 1 for w in program.get_weights()])
            >>> program.get_weights()[1].tolist()
            [1.0, 1.0, 1.0]
        """
        if not isinstance(weights, Iterable):
            raise WeightsError("set_weights takes a list of arrays, in the order of get_weights, "
                               f"not {weights!r}")
        names, values = self.weight_names, list(weights)
        if len(values) != len(names):
            raise WeightsError(f"set_weights got {len(values)} arrays; the model has {len(names)} "
                               f"weights: {', '.join(names)}")
        from ztorch.training.checkpoint import fit_state

        arrays = {}
        for k, (name, value) in enumerate(zip(names, values, strict=True)):
            array = as_array(value, f"set_weights()[{k}]")
            if array.dtype.kind != "f":
                array = array.astype(np.float32)
            arrays[name] = fit_state(name, array, dtype(array.dtype), self.executable.states[name],
                                     f"set_weights()[{k}]")
        self.executable.restore(arrays)

    @checked
    def save_weights(self, path: Path) -> None:
        """Writes the weights to a safetensors file, atomically.

        Args:
            path: The file, named .safetensors.

        Raises:
            ConfigError: The file has another suffix.
            FileError: It cannot be written.

        Examples:
            ```python
            program.save_weights("digits.safetensors")
            ```
        """
        from ztorch.weights import own_files

        own_files.write(path, self.weight_arrays(), self.name)

    @checked
    def load_weights(self, path: Path) -> None:
        """Replaces all weights by those of a file.

        Args:
            path: A safetensors file of `save_weights`, or a checkpoint.

        Raises:
            WeightsError: The file is damaged, or its weights are those of another model.

        Examples:
            ```python
            program.load_weights("digits.safetensors")
            ```
        """
        from ztorch.weights import own_files

        shapes = {n: tuple(self.executable.states[n].shape) for n in self.weight_names}
        self.set_weights(list(own_files.read(path, shapes, self.name).values()))

    # -- those of the model ------------------------------------------------------------------------

    def take_weights(self) -> None:
        """Updates weights that are newer in the model."""
        if self.model_weights is not None:
            self.model_weights.take()

    def lend_weights(self) -> None:
        """Makes this program the home of the model's weights."""
        if self.model_weights is not None:
            self.model_weights.move_in()
