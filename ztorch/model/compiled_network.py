"""A network and its program, compiled at once or when its data are known."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ztorch.config import ascending
from ztorch.errors import ConfigError, Unsupported, ZtorchError
from ztorch.layers.axes import OpenSize
from ztorch.locks import OwnLock
from ztorch.losses import UnfitTargets
from ztorch.model.late_compile import LateCompile
from ztorch.model.programs import ModelPrograms, hand_over
from ztorch.model.step_functions import need_some_loss
from ztorch.model.tuning import TunedNetwork
from ztorch.optimizers import Optimizer
from ztorch.runtime.buckets import ROWS
from ztorch.terminal.work_line import working

if TYPE_CHECKING:
    from ztorch.program.program import Program


class CompiledNetwork(TunedNetwork, abstract=True):
    """A network that keeps its program."""

    _pipeline: Any = None
    _late: LateCompile | None = None  # a compile that waits for data
    _asked: LateCompile | None = None  # the last compile
    _takes_given = False  # whether batches of the data are the steps: no size was requested

    def compile(self, *args: Any, **options: Any) -> Any:
        """Compiles the network, as a Model does."""
        raise NotImplementedError

    @property
    def preparing(self) -> OwnLock:
        """The lock under which the network finds or compiles the program for a call, so that
        threads may call it at once."""
        mine = vars(self)  # setdefault is one step for threads
        return mine.get("_preparing") or mine.setdefault("_preparing", OwnLock())

    @abstractmethod
    def compile_now(self, *, device: str, threads: int | None, matmul_precision: str,
                    memory_limit: int | str | None, **arguments: Any) -> Program:
        """Compiles the network, whose inputs are known."""

    def compile_when_known(self, **arguments: Any) -> Any:
        """Compiles the network, for arguments of `compile`, once its inputs and the sizes of open
        axes are known. Returns the program, or the network while it waits for data."""
        with self.preparing:
            return self._compiled_when_known(arguments)

    def _compiled_when_known(self, arguments: dict[str, Any]) -> Any:
        self.batch_sizes(arguments["batch_size"])  # wrong ones are an error before data arrive
        before = self._asked, self._late, self._takes_given
        waits = not self.knows_inputs or (arguments["sizes"] is None and bool(self.axis_names))
        if not waits:
            need_some_loss(self, **{name: arguments[name] for name in (
                "loss", "optimizer", "metrics", "sizes")})
        self._asked = LateCompile(arguments)
        self._takes_given = arguments["batch_size"] is None and not self.declared_batch_size
        self._late = LateCompile(arguments)
        waits = waits or bool({"train", "evaluate"} & self._late.own_functions(self))
        if not waits:
            try:
                program = self.compile_now(**arguments)
            except UnfitTargets:  # the data will determine their form
                self._late.needs_targets = True
            except Exception:  # the model stays as it was
                self._asked, self._late, self._takes_given = before
                raise
            else:
                self._late.keep()
                if not (program.metadata.whole_batches or self._late.takes_any(self)
                        or self.own_call is not None):  # it takes rows of other lengths later
                    self._late = None
                return program
        self._programs = None
        return self

    def _without_sizes(self) -> ConfigError:
        """The error for a use without data of a model that takes the sizes of its inputs from
        data."""
        if not self.knows_inputs:
            self.build()  # raises the error that says how to give shapes
        return ConfigError(f"model {self.name!r} takes the sizes of its open axes from data: call "
                           "fit or predict first, or pass sizes= to compile")

    def compile_later(self, arguments: dict[str, Any], resume: Callable[[Program], None]) -> None:
        """Compiles the network for these arguments of `compile` when it is first trained or
        evaluated, and then restores states of the program with `resume`."""
        self._late = LateCompile(arguments, resume)

    def learn_shapes(self, x: Any, y: Any = None, function: str = "predict",
                     batch_size: int | None = None, split: float = 0.0,
                     weighted: Any = None) -> None:
        """Configures a model that waits for data, from the function and arguments of its first
        use."""
        with self.preparing:
            self._learn(x, y, function, batch_size, split, weighted)

    def _learn(self, x: Any, y: Any, function: str, batch_size: int | None, split: float,
               weighted: Any) -> None:
        from ztorch.feed.row_shapes import batches_inputs, row_shapes
        from ztorch.feed.row_weights import axes_of_weights

        if not self.knows_inputs:
            self.build(row_shapes(x, batch_size or ROWS if self.own_call else None))
        for part in (batches_inputs(x, few=True) or (x,)) if self.own_call is not None else ():
            if hasattr(part, "shape"):
                self._open_axes_that_vary(tuple(part.shape[1:]))
        if self._late is not None and self._late.follows_data and self.axis_names:
            self._late.hold(self, x)
        if self._late is not None and function != "predict":
            self._late.hold_targets(x, y, self, self.program)
        if self._late is not None and function in self._whole_batches(function):
            if function != "predict":
                weights = None if isinstance(weighted, bool) else weighted
                self._late.hold_given_targets(x, y, weighted is not None and weighted is not False,
                                              axes_of_weights(self, (x, y, weights)))
            self._late.hold_batches(x, batch_size or self.batch_sizes(
                self._late.arguments["batch_size"])[-1], split)

    def _open_axes_that_vary(self, row: tuple[int, ...]) -> None:
        """Opens the axes of a class's input along which rows of this shape differ from those
        before, except for the axis of features: other lengths are taken, as in Keras."""
        known, inputs = self.input_shape, [*self.inputs_by_name.values()]
        if not isinstance(known, tuple) or len(inputs) > 1 or len(known) != len(row) + 1:
            return
        pairs = [*zip(known[1:], row, strict=True)]
        axes = [None if n != m or isinstance(n, OpenSize) else n for n, m in pairs]
        differs = any(n != m and not isinstance(n, OpenSize) for n, m in pairs)
        if not differs or (inputs[0].dtype is None and axes[-1] != known[-1]):  # integers are ids
            return
        try:
            self.build((None, *row))
            self.build((None, *axes))
        except ZtorchError:  # such as a Dense layer of all steps: the data are refused
            self.build(known)

    def _whole_batches(self, function: str) -> frozenset[str]:
        """The functions that combine the rows of a batch: those of own steps, and those with ops,
        losses or metrics that do, which the compiler finds."""
        assert self._late is not None
        own = self._late.own_functions(self) - {"predict"}
        if function in own:
            return own
        self.compile_if_due(function)
        return own if self.program is None else own | {*self.program.metadata.whole_batches}

    def batch_sizes(self, requested: Any) -> tuple[int, ...]:
        """The batch sizes of a step: those of compile, or those that Inputs declare, or 32."""
        return ascending("batch_size", self.declared_batch_size or self.rows_together or ROWS
                         if requested is None else requested)

    @property
    def takes_given(self) -> bool:
        """Whether batches of the data are steps: no size was requested, and no layer remembers a
        state for each row."""
        stateful = self.program is not None and bool(self.program.adapter.stateful)
        return self._takes_given and not stateful

    def rows_given(self, x: Any) -> int | None:
        """The batch size of a step if x consists of batches and `compile` got no size; None: that
        of `compile`."""
        from ztorch.feed.row_shapes import stream_rows

        return stream_rows(x) if self.takes_given else None

    def _compiled_optimizer(self) -> Any:
        if self.program is not None and "train" in self.program.executable.functions:
            assert self._programs is not None
            return self._programs.training.optimizer
        optimizer = None if self._late is None else self._late.arguments["optimizer"]
        return None if optimizer is None else Optimizer.get(optimizer)

    def _epoch_metrics(self) -> list[Any]:
        from ztorch.model.step_metrics import EpochScore

        if self.program is None or "evaluate" not in self.program.executable.functions:
            return []
        assert self._programs is not None
        curves = self._programs.training.history.history
        return [EpochScore(name, [*curves.get(name, [])]) for name in self.program.metrics_names]

    def compile_if_due(self, function: str) -> None:
        """Compiles a waiting program once data have determined its sizes, and again for larger
        data. For predictions it omits a loss whose targets are not yet known. A program that is
        training stays."""
        with self.preparing:
            self._compile_due(function)

    def _compile_due(self, function: str) -> None:
        arguments = None if self._late is None or self._trains else self._late.due(function)
        if arguments is not None and self._late is not None:
            before = self.program
            with self._late.compiling():
                try:
                    program = self.compile_now(**arguments)
                except UnfitTargets:
                    if function != "predict":
                        raise
                    program = self.compile_now(**self._late.to_predict())
                except Unsupported as error:
                    program = self._compile_whole(arguments, error)
            if self._late is not None and self._late.resume is not None:
                self._late.resume(program)
                self._late.resume = None
            elif before is not None:
                hand_over(before, program)
                program.lend_weights()

    def _compile_whole(self, arguments: dict[str, Any], error: Unsupported) -> Program:
        """Compiles the network for each size of the data, without padding, after an error that a
        loss or metric which combines positions may have caused."""
        late = self._late
        if late is None or not late.follows_data or not self.axis_names or self.mixes_open_axes:
            raise error
        self.mixes_open_axes = str(error)
        try:
            program = self.compile_now(**{**arguments, "sizes": late.hold_whole(self)})
        except Unsupported:  # for another reason
            self.mixes_open_axes = ""
            raise error from None
        late.keep()
        return program

    @property
    def _trains(self) -> bool:
        """Whether a program is training, and a callback asks."""
        weights = None if self._programs is None else self._programs.training.model_weights
        return weights is not None and weights.busy

    @property
    def sizes_beside(self) -> dict[str, Any]:
        """The sizes of open axes for which a callback needs a program beside the one that is
        training; empty if that one fits."""
        return dict(self._late.sizes) if (
            self._late is not None and self._late.is_due and self._trains) else {}

    def keep(self, make: Callable[..., Program], arguments: dict[str, Any]) -> Program:
        """Creates the program that the network uses from now on.

        Args:
            make: Compiles the network, for arguments of `compile` by name.
            arguments: The arguments of this compile.

        Returns:
            The program, which becomes the home of the weights.
        """
        with working(f"compile {self.name}"):
            program = make(**arguments)
        # Programs for other batch sizes are freed with the last thread that runs them.
        self._programs = ModelPrograms(
            self, program, make, arguments, self._late is not None and self._late.follows_data)
        program.lend_weights()
        return program

    @property
    def compiled(self) -> bool:
        """Whether the model was compiled with its current layers."""
        return self._programs is not None and self._programs.fit(self)

    @property
    def pipeline(self) -> Any:
        """A `zt.Pipeline`, the meaning of data and classes. Programs and files of the model include
        it."""
        return self._pipeline

    @pipeline.setter
    def pipeline(self, pipeline: Any) -> None:
        for program in () if self._programs is None else self._programs.all:
            program.pipeline = pipeline
        self._pipeline = pipeline

    @property
    def compile_arguments(self) -> dict[str, Any]:
        """The arguments of the last compile, which may wait for data; empty without a compile."""
        if self._late is not None:
            return self._late.arguments
        return {} if self._programs is None else self._programs.arguments

    @property
    def program(self) -> Program | None:
        """The program that `compile` returned last; None if the model is not compiled."""
        return None if self._programs is None else self._programs.compiled

    @property
    def stop_training(self) -> bool:
        """Whether to end training. Callbacks set it."""
        return self._programs is not None and self._programs.training.stop_training

    @stop_training.setter
    def stop_training(self, stop: bool) -> None:
        if self._programs is None:
            raise ConfigError(f"model {self.name!r} is not training; only callbacks end training")
        self._programs.training.stop_training = stop
