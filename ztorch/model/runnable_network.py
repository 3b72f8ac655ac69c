"""A network that runs with the program it was compiled to, which holds its weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ztorch.arguments import checked
from ztorch.errors import ConfigError
from ztorch.feed.row_shapes import row_count
from ztorch.model.prepared_network import PreparedNetwork
from ztorch.model.programs import not_compiled
from ztorch.names.keras_calls import as_in_keras
from ztorch.program.verbs import Verbs, need_batch_size

if TYPE_CHECKING:
    from ztorch.program.program import Program

# Names that users expect on a model, but that belong to the program.
_PROGRAM_NAMES = ("borrow", "device", "load_checkpoint", "plot", "save_checkpoint")


class RunnableNetwork(PreparedNetwork, Verbs, abstract=True):
    """A network with the methods of its program."""

    @as_in_keras("x batch_size verbose steps callbacks")
    @checked
    def predict(self, x: Any, *, batch_size: int | None = None, verbose: int | str = 0,
                steps: int | None = None, callbacks: Any = None, out: Any = None) -> Any:
        """Computes the model's outputs. A model that is not compiled is compiled to predict.

        Args:
            x: Any number of rows: an array of shape (rows, *input_shape), anything NumPy reads, a
                `zt.Tensor`, or an iterator of batches. For a model with several inputs, a list in
                their order or a dict by their names.
            batch_size: The batch size; None: that of `compile`. Another one compiles another
                function with the same weights. Default: `None`.
            verbose: 0 prints nothing, 1 a progress bar, 2 one line; "auto" means 1 on a terminal
                and 2 elsewhere. Default: `0`.
            steps: Number of batches to predict; None: all. Default: `None`.
            callbacks: One or more callbacks, whose `on_predict` hooks are called. Default: `None`.
            out: Arrays for the result, in its form; they may overlap with x. Default: `None`.

        Returns:
            An array of shape (rows, *output_shape); a tensor for a `zt.Tensor`. For a model with
            several outputs, a list or dict of them, as the model was declared. With `out`, that.

        Raises:
            DataError: x does not fit the model's inputs, or with a ConfigError `out` the result.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> model.predict(np.ones((20, 4))).shape
            (20, 1)
        """
        from ztorch.feed.row_shapes import can_be_looked_at

        need_batch_size("predict", batch_size)
        self.need_call("predicted with")
        if batch_size is None and steps is None and callbacks is None:
            ready = self.ready()
            if ready is not None:
                return ready.predict_for(self, x, None, verbose, None, None, out)
        x = can_be_looked_at(x)
        with self.preparing:
            self.need_compiled()
            whole = self.program is not None and "predict" in self.program.metadata.whole_batches
            matter = whole or steps is not None or callbacks is not None  # the batches of x
            as_given = matter and batch_size is None and self.takes_given
            batch_size = self.rows_given(x) if as_given else batch_size
            self.learn_shapes(x, batch_size=batch_size)
            if self.mixes_open_axes and batch_size is None and self.takes_given:
                as_given, batch_size = True, self.rows_given(x)
            running = self.running("predict", batch_size)
        with running as program:
            return program.predict_for(
                self, x, batch_size, verbose, steps, callbacks, out, as_given)

    def predict_on_batch(self, x: Any, out: Any = None) -> Any:
        """Computes the model's outputs for one batch of rows.

        Args:
            x: As in `predict`. More rows than that of `compile` compile another function.
            out: Arrays for the result, in its form; they may overlap with x. Default: `None`.

        Returns:
            The result of `predict`, or `out`.

        Raises:
            DataError: x does not fit the model's inputs, or with a ConfigError `out` the result.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> model.predict_on_batch(np.ones((3, 4))).shape
            (3, 1)
        """
        self.need_call("predicted with")
        ready = self.ready()
        if ready is not None and ((rows := row_count(x)) is None or rows <= ready.batch_size):
            return ready.predict_on_batch(x, out)
        with self.preparing:
            self.need_compiled()
            self.learn_shapes(x)
            running = self.running("predict", self.size_for(x, "predict"))
        with running as program:
            return program.predict_on_batch(x, out)

    def generate(self, prompt: Any, length: int, **options: Any) -> Any:
        """Continues a sequence of numbers. The model must be compiled with `decode`.

        Args:
            prompt: One or more integers to start with, or a list of such prompts.
            length: Maximum number of numbers to draw.
            **options: The other arguments of `Program.generate`.

        Returns:
            The result of `Program.generate`.

        Raises:
            ConfigError: The model was compiled without `decode`, or an argument is invalid.

        Examples:
            ```python
            model.compile("cpu", decode=True)
            model.generate(encode("Shall I"), 100, temperature=0.5)
            ```
        """
        with self.running("predict") as program:
            return program.generate(prompt, length, **options)

    @as_in_keras("path overwrite", {"filepath": "path"}, "overwrite zipped")
    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the compiled artifact, which `zt.load` runs without the compiler, or a file for
        Keras.

        Args:
            path: A file that ends in .zt; or in .keras for Keras' format, with layers, weights and
                the arguments of `compile`, for `keras.models.load_model` and `zt.load_keras`.
                Arguments that it cannot hold cause a warning.

        Raises:
            ConfigError: The suffix of the path is that of a weights format.
            Unsupported: Keras lacks some of the layers; the message lists all of them.

        Examples:
            ```python
            model.save("digits.zt")
            model.save("digits.keras")
            ```
        """
        self.need_call("saved as a whole")
        name = os.fspath(path)
        if name.endswith(".keras"):
            self._save_for_keras(name)
            return
        if name.endswith((".h5", ".safetensors")):
            raise ConfigError(f"save({name!r}) writes an artifact, such as 'model.zt', or a model "
                              "for Keras, 'model.keras'; weights alone go to model.save_weights("
                              "'model.weights.h5'), which Keras reads, or 'model.safetensors'")
        with self.running("predict") as program:
            program.save(path)

    def _save_for_keras(self, path: str) -> None:
        from ztorch.model.keras_compiling import compile_config
        from ztorch.weights import keras_archive

        compiled = self._programs.arguments if self._programs is not None else None
        keras_archive.save(self, path, compile_config(compiled) if compiled else None,
                           self._optimizer_states())

    def _optimizer_states(self) -> dict[str, Any] | None:
        """The states of the optimizer by name; None: the model does not train."""
        executable = None if self.program is None else self.program.executable
        if executable is None or "train" not in executable.functions:
            return None
        return {name: executable.state(name) for name in executable.states
                if name.startswith("optimizer/")}

    @as_in_keras("", {"filepath": "path"}, "overwrite max_shard_size")
    @checked
    def save_weights(self, path: str | os.PathLike[str], layout: str | None = None,
                     names: Mapping[str, str] | None = None,
                     flatten_from: str | None = None) -> None:
        """Writes the weights to a file, atomically.

        Args:
            path: The file. A name that ends in .weights.h5 is for Keras, .safetensors and .npz use
                names such as `layer/weight`, .gguf is for llama.cpp.
            layout: "torch" writes PyTorch's names and layouts, which .gguf always uses. Default:
                `None`.
            names: The names of layers in the file, such as {"dense": "fc1"}. Default: `None`.
            flatten_from: The order of image features in the file, "channels_first" or
                "channels_last", if the layers do not determine it. Default: `None`.

        Raises:
            WeightsError: The format cannot hold a weight.

        Examples:
            ```python
            model.save_weights("digits.safetensors")
            ```
        """
        from ztorch.weights import files

        self.need_memory(8)
        files.save(self, path, layout, names, flatten_from)

    @as_in_keras("", {"filepath": "path"})
    @checked
    def load_weights(self, path: str | os.PathLike[str], names: Mapping[str, str] | None = None,
                     flatten_from: str | None = None, skip_mismatch: bool = False) -> None:
        """Reads the weights from a file. All are checked before any is changed.

        Args:
            path: A file that `save_weights` of this model or its program wrote, or one of Keras
                (.keras, .weights.h5), PyTorch (.pt, .safetensors), NumPy (.npz) or llama.cpp
                (.gguf) for a model with the same layers.
            names: The names of layers in the file, such as {"dense": "fc1"}. Default: `None`.
            flatten_from: The order of image features in the file, "channels_first" or
                "channels_last", if the layers do not determine it. Default: `None`.
            skip_mismatch: Whether to skip layers that are missing in the file or have another shape
                there; a warning names them. Default: `False`.

        Raises:
            WeightsError: The file is damaged, or its weights do not fit the model; the message
                names the first one that does not fit.

        Examples:
            ```python
            model.load_weights("digits.safetensors")
            ```
        """
        from ztorch.weights import files

        self.set_weights(files.load(self, path, names, flatten_from, skip_mismatch))

    @property
    def history(self) -> Any:
        """The record of the last fit."""
        return self._compiled_program().history

    @property
    def metrics_names(self) -> list[str]:
        """The names of the scores that `evaluate` returns, in order."""
        return self._compiled_program().metrics_names

    @property
    def learning_rate(self) -> float:
        """The optimizer's learning rate, which may be set during training."""
        return self._compiled_program().learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._compiled_program().learning_rate = rate

    def reset_states(self) -> None:
        """Resets the states of stateful layers to zero: the next batch starts new sequences.

        Examples:
            >>> import ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4, 3)), zt.layers.GRU(2, stateful=True)])
            >>> model.reset_states()
        """
        super().reset_states()
        if self.program is not None:
            self.program.reset_states()

    def _compiled_program(self) -> Program:
        if self.program is None:
            raise not_compiled(self.name, "do this")
        return self.program

    def __getattr__(self, name: str) -> Any:
        if name in _PROGRAM_NAMES:
            raise AttributeError(f"a model has no {name!r}, but its program does: "
                                 f"model.program.{name}, after compile")
        return super().__getattr__(name)
