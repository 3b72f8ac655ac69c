"""The base class of programs, which predict, generate and describe themselves. To start quickly,
services import only the modules at the top of this file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ztorch import dispatch
from ztorch.arguments import checked
from ztorch.config import flag
from ztorch.feed.adapter import Columns, rows_of
from ztorch.feed.call_pool import CallPool, as_declared, run_into_new
from ztorch.feed.sources import is_stream
from ztorch.names.keras_calls import as_in_keras
from ztorch.program.stateful import Stateful
from ztorch.program.verbs import need_batch_size
from ztorch.program.weight_access import Path

if TYPE_CHECKING:
    from typing_extensions import Self

    from ztorch.runtime.loaded_program import LoadedProgram

# Names that users of Keras expect on the trained object, but that belong to the model.
_MODEL_NAMES = ("compile", "count_params", "get_config", "get_layer", "input_shape", "inputs",
                "layers", "output_shape", "to_json")


class Predictor(Stateful):
    """A compiled model that predicts. Safe to share between threads."""

    @as_in_keras("x batch_size verbose steps callbacks")
    def predict(self, x: Any, *, batch_size: int | None = None, verbose: int | str = 0,
                steps: int | None = None, callbacks: Any = None, out: Any = None) -> Any:
        """Computes the model's outputs.

        Args:
            x: Any number of rows: an array of shape (rows, *input_shape), anything NumPy reads, a
                `zt.Tensor`, or an iterator of batches. For a model with several inputs, a list in
                their order or a dict by their names.
            batch_size: Not needed. If passed, it must be that of `compile`. Default: `None`.
            verbose: 0 prints nothing, 1 a progress bar, 2 one line; "auto" means 1 on a terminal
                and 2 elsewhere. Default: `0`.
            steps: Number of batches to predict; None: all. Default: `None`.
            callbacks: One or more callbacks, whose `on_predict` hooks are called. Default: `None`.
            out: Arrays for the result, in its form; they may overlap with x. Default: `None`.

        Returns:
            An array of shape (rows, *output_shape); for a `zt.Tensor`, a tensor on the program's
            device. For a model with several outputs, a list or dict of them, as the model was
            declared. With `out`, that.

        Raises:
            DataError: x does not fit the model's inputs; the message says how to change it.
            ConfigError: `batch_size` differs from the compiled one, or `out` does not fit.
            Unsupported: `out` for a result whose size is not known beforehand.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> layers = [zt.layers.Input((4,)), zt.layers.Dense(1)]
            >>> program = zt.Sequential(layers).compile("cpu", batch_size=8)
            >>> program.predict(np.ones((20, 4))).shape
            (20, 1)
        """
        return self.predict_for(self, x, batch_size, verbose, steps, callbacks, out)

    def predict_for(self, predicted: Any, x: Any, batch_size: int | None, verbose: int | str,
                    steps: int | None, callbacks: Any, out: Any, as_given: bool = False) -> Any:
        """The result of `predict`; `predicted` is the model that callbacks see."""
        need_batch_size("predict", batch_size)
        size = self.buckets.rows(batch_size)
        if steps is None and callbacks is None:
            if not verbose and (y := self.calls.again(x, out)) is not None:
                return y
            if dispatch.is_tensor(x) and out is None:
                return self._as_declared(dispatch.predict(self, x))
            columns = self.adapter.inputs(x) if self.adapter.reads_table(x) or not is_stream(
                x, None) else None
            if (columns is not None and not verbose and rows_of(columns) <= size
                    and self.adapter.fits_one_bucket(columns)):
                return self._predict_batch(x, columns, out)
        from ztorch.program.predicting import predict

        y = predict(self, predicted, x, size, verbose, steps, callbacks, self._as_declared, out,
                    as_given)
        return y if out is None else out

    def predict_on_batch(self, x: Any, out: Any = None) -> Any:
        """Computes the model's outputs for at most one batch of rows.

        Args:
            x: As in `predict`, with at most `batch_size` rows.
            out: Arrays for the result, in its form; they may overlap with x. Default: `None`.

        Returns:
            The result of `predict`, or `out`.

        Raises:
            DataError: x has more rows than a batch, or does not fit the model's inputs.
            ConfigError: `out` does not fit the result.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> layers = [zt.layers.Input((4,)), zt.layers.Dense(1)]
            >>> program = zt.Sequential(layers).compile("cpu", batch_size=8)
            >>> program.predict_on_batch(np.ones((3, 4))).shape
            (3, 1)
        """
        if (y := self.calls.again(x, out)) is not None:
            return y
        if dispatch.is_tensor(x) and out is None:
            first = next(iter(x.values())) if isinstance(x, dict) else x
            self.need_one_batch(len(first[0] if isinstance(first, (list, tuple)) else first))
            return self.predict(x)
        columns = self.adapter.inputs(x)
        self.need_one_batch(rows_of(columns))
        return self._predict_batch(x, columns, out)

    def _predict_batch(self, x: Any, columns: Columns, out: Any) -> Any:
        """The outputs for x, whose columns are at most one batch."""
        count = rows_of(columns)
        self.adapter.need_whole_batches(count, self.batch_size)
        with self.calls.fitting("predict", self.adapter.sizes(columns)) as call:
            self.adapter.stage(call, columns)  # older rows after these do no harm
            self.calls.remember(x, self.adapter, call, self.metadata.outputs_are)
            if out is not None:
                from ztorch.feed.out_arrays import predict_into  # not needed by most services

                return predict_into(out, call, columns, self.metadata)
            if not self.metadata.open_axes:
                return self._as_declared(run_into_new(call, count))
            call()
            from ztorch.feed.results import Results
            from ztorch.feed.staging import Batch

            results = Results(count, self.metadata.open_axes, bool(self.metadata.whole_axes))
            results.add(Batch(call, count, count, slice(0, count), self.adapter.lengths(columns)))
            return self._as_declared(results.outputs())

    def _as_declared(self, outputs: dict[str, Any]) -> Any:
        return as_declared(outputs, self.metadata.outputs_are)

    @checked
    def generate(self, prompt: Any, length: int, *, temperature: float = 1.0,
                 top_k: int | None = None, top_p: float | None = None,
                 repetition_penalty: float = 1.0, stop: Any = (), seed: int = 0,
                 beams: int | None = None, length_penalty: float = 1.0,
                 stream: bool = False) -> Any:
        """Continues a sequence of numbers, such as the characters of a text.

        Each number is drawn by its probability. One native call generates many numbers: it runs the
        model, draws a number, and continues. If the sequence is longer than the model's input, its
        older half is dropped.

        Args:
            prompt: One or more integers to start with, or a list of such prompts, which may differ
                in length.
            length: Maximum number of numbers to draw.
            temperature: Above 1 makes unlikely numbers more likely, below 1 less likely; 0 always
                takes the most likely number. Default: `1.0`.
            top_k: Draws only from this many of the most likely numbers, and ties with the last of
                them; None: from all. Default: `None`.
            top_p: Draws only from the most likely numbers with this total probability, after
                `top_k`; None: from all. Default: `None`.
            repetition_penalty: Divides positive logits of repeated numbers, and multiplies negative
                ones. Default: `1.0`.
            stop: Numbers that end a sequence, an integer or several. Default: `()`.
            seed: The same seed draws the same numbers. Of several prompts, prompt k is continued as
                it would be alone with `seed + k`. Default: `0`.
            beams: Beam search: draws nothing, but keeps this many most likely continuations, and
                returns the best. The program needs `decode` of at least as many rows. None: draws.
                Default: `None`.
            length_penalty: Beams are ranked by their log-probability divided by their length to
                this power: above 0, longer ones rank higher. Default: `1.0`.
            stream: Whether to return an iterator that generates numbers on demand. Default:
                `False`.

        Returns:
            An int32 array of the numbers that follow, including a number of `stop`; for several
            prompts, a list of arrays. With `stream`, an iterator of numbers.

        Raises:
            ConfigError: The model was compiled without `decode`, this program is already
                generating, or an argument is invalid.
            DataError: A prompt is empty, or contains numbers that the model does not accept.

        Examples:
            ```python
            program = model.compile("cpu", decode=True)
            for k in program.generate(encode("Shall I"), 100, temperature=0.5, stream=True):
                print(decode([k]), end="", flush=True)
            ```
        """
        from ztorch.program.generate import Drawing, generate

        drawing = Drawing(temperature, top_k, top_p, repetition_penalty, stop, seed)
        stream = flag("generate(stream=...)", stream)
        if beams is None and length_penalty == 1.0:
            return generate(self, prompt, length, drawing, stream)
        from ztorch.program.beams import Search, search

        return search(self, prompt, length, Search(beams, length_penalty, drawing, stream))

    @checked
    def summary(self, print_fn: Callable[[str], Any] = print) -> None:
        """Prints the layers, the functions, and the memory of the states.

        Args:
            print_fn: Called with each line. Default: `print`.

        Examples:
            ```python
            program.summary()
            ```
        """
        from ztorch.program.summary import print_summary

        print_summary(self, print_fn)

    @checked
    def plot(self, path: Path | None = None, function: str | None = None) -> Any:
        """Draws a function: its kernels, its buffers, and its memory over time. For the course of
        training, see `program.history.plot()`.

        Args:
            path: A PNG, SVG or PDF file to write; None writes no file. Default: `None`.
            function: "train", "evaluate", "predict" or another one; None: the first of these that
                the program has. Default: `None`.

        Returns:
            The matplotlib figure.

        Examples:
            ```python
            program.plot("plan.svg")
            ```
        """
        from ztorch.program.picture import draw_plan

        functions = self.executable.functions
        default = next(n for n in ("train", "evaluate", "predict") if n in functions)
        return draw_plan(self.executable.spec, function or default, path)

    def reset_states(self) -> None:
        """Resets the states of stateful layers to zero: the next batch starts new sequences.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4, 3)), zt.layers.GRU(2, stateful=True)])
            >>> program = model.compile("cpu", batch_size=1)
            >>> x = np.ones((1, 4, 3))
            >>> first, second = program.predict(x).tolist(), program.predict(x).tolist()
            >>> program.reset_states()
            >>> program.predict(x).tolist() == first, second == first
            (True, False)
        """
        for name, state in self.executable.states.items():
            if state.role == "memory":
                self.executable.set_state(name, np.zeros(state.shape, state.dtype.numpy))

    def close(self) -> None:
        """Frees the memory, once calls in other threads have ended. The program cannot be used
        afterwards. A `with` block closes its program at its end.

        Examples:
            ```python
            with zt.load("digits.zt") as program:
                scores = program.predict(x)
            ```
        """
        from ztorch.program.closed import ClosedProgram  # rarely needed

        if self.model_weights is not None:
            self.model_weights.move_out()
            self.model_weights = None
        self.executable = cast("LoadedProgram", ClosedProgram(self.name))
        self.calls = CallPool(self.executable, self.buckets)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in _MODEL_NAMES:
            raise AttributeError(f"a program has no {name!r}, but the model that it was compiled "
                                 f"from does: model.{name}")
        from ztorch.names.names_elsewhere import no_attribute  # not needed to predict
        raise no_attribute(self, name)

    def __reduce__(self) -> Any:
        raise TypeError("a program holds native code, which cannot be pickled or copied; write it "
                        "with save() and read it with zt.load()")

    def __repr__(self) -> str:
        return f"<Program {self.name} on {self.device}, batch {self.batch_size}>"
