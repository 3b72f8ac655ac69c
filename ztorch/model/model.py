"""Model: a network of layers that can be compiled, described and saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ztorch.arguments import checked
from ztorch.compile.traced_model import TracedModel
from ztorch.errors import VAGUE, ConfigError, agreement
from ztorch.graph.value import Graph
from ztorch.losses import Loss
from ztorch.metrics import MetricLists
from ztorch.model.runnable_network import RunnableNetwork
from ztorch.model.summary import Shown, print_summary
from ztorch.model.trace import trace
from ztorch.names.keras_calls import as_in_keras
from ztorch.optimizers.optimizer import Optimizer, is_optimizer

if TYPE_CHECKING:

    from ztorch.program.program import Program

class Model(RunnableNetwork):
    """A model: layers called on tensors, from its inputs to its outputs.

    Layers without a name are named after their class: dense, dense_1. A layer that is called twice
    is one layer with one set of weights. A model can be a layer of another model.

    Args:
        inputs: An Input, or a list or dict of Inputs. Inputs in a list keep their names.
        outputs: A tensor computed from the inputs by layers, or a list or dict of tensors. Outputs
            in a list are named after their layers.
        name: The name of the model; None: derived from the class.
        seed: The seed of initial weights, dropout and shuffling. The initial value of a weight
            depends only on it and on the weight's name. None: 0, or the seed of the enclosing
            model.
        trainable: Whether training changes the weights.

    Raises:
        ConfigError: The outputs do not depend on the inputs.

    Examples:
        >>> from ztorch.layers import Add, Dense, Input
        >>> x = Input((4,))
        >>> hidden = Dense(8, activation="relu")(x)
        >>> model = Model(x, Dense(3)(Add()([hidden, Dense(8)(hidden)])))
        >>> model.output_shape, model.count_params()
        ((None, 3), 139)
    """

    @checked
    def summary(self, print_fn: Callable[[str], Any] | None = None, *,
                line_length: int | None = None, positions: Sequence[float] | None = None,
                expand_nested: bool = True, show_trainable: bool = False,
                layer_range: Sequence[str] | None = None) -> None:
        """Prints the layers with their output shapes, parameters, FLOPs and bytes.

        Args:
            print_fn: Called with each line. `None` means `print`. Default: `None`.
            line_length: Width in characters; longer cells are cut off. `None` means as wide as
                needed. Default: `None`.
            positions: Ends of the columns, as fractions of `line_length` or in characters. `None`
                means after their longest cells. Default: `None`.
            expand_nested: Whether inner layers have separate lines. Default: `True`.
            show_trainable: Whether a column shows which layers train. Default: `False`.
            layer_range: The names of the first and last layer to show. Default: `None`.

        Examples:
            ```python
            model.summary()
            ```
        """
        print_summary(self, print_fn or print, show_trainable, Shown(
            line_length, positions, expand_nested, layer_range))

    # -- programs ----------------------------------------------------------------------------------

    @checked
    def trace(self, batch_size: int | Sequence[int], optimizer: Any = None, loss: Any = None,
              metrics: Any = (), dtype: Any = None, seed: int | None = None,
              loss_weights: Any = None, decode: bool | int = False,
              sizes: Any = None) -> TracedModel:
        """Creates the graphs of a program, as `compile` does, for exports and for inspection.

        Args:
            batch_size: The batch size, or several sizes.
            optimizer: As in `compile`. Default: `None`.
            loss: As in `compile`. Default: `None`.
            metrics: As in `compile`. Default: `()`.
            dtype: As in `compile`. Default: `None`.
            seed: As in `compile`. Default: `None`.
            loss_weights: As in `compile`. Default: `None`.
            decode: As in `compile`. Default: `False`.
            sizes: As in `compile`. Default: `None`.

        Returns:
            A TracedModel. `functions` holds the graph "predict"; with a loss also "evaluate", with
            an optimizer "train", with decode "prefill" and "generate". These are for the largest
            sizes; other sizes have names such as "predict@8".

        Raises:
            ConfigError: An argument is invalid.

        Examples:
            ```python
            export_c(model.trace(batch_size=1), "out")
            ```
        """
        return trace(self, batch_size, optimizer, loss, metrics, dtype or self.policy, seed,
                     loss_weights, decode, sizes)

    @as_in_keras(ignored="run_eagerly steps_per_execution jit_compile auto_scale_loss")
    @checked
    def compile(self, device: Any = "auto", loss: Any = None, *,
                batch_size: int | Sequence[int] | None = None, optimizer: Any = None,
                metrics: Iterable[Any] | None = (),
                dtype: Any = None, threads: int | None = None, seed: int | None = None,
                loss_weights: Any = None, decode: bool | int = False,
                matmul_precision: str = "float32", sizes: Any = None,
                memory_limit: int | str | None = None,
                weighted_metrics: Iterable[Any] | None = None) -> Any:
        """Compiles the model to native code for one device and one or more batch sizes.

        Without a loss the program predicts. With a loss it also evaluates, and with an optimizer it
        trains. The model keeps the program: `model.fit`, `evaluate` and `predict` use it, and the
        model gets the trained weights. If the model is compiled again, the new program starts with
        the weights of the model, and the old program keeps its own.

        Args:
            device: "cpu" (all cores, the best instructions), "cpu:avx2" and similar, "cuda:0",
                "vulkan:0", "opencl:0", "webgpu", "metal", "rocm:0", or "auto" for the best device;
                `zt.devices()` lists those of this machine. As in Keras, an optimizer may come
                first: `compile("adam", "mse")`. Default: `"auto"`.
            batch_size: The batch size of a step. `fit` and `predict` accept any number of rows.
                With several sizes, such as `(1, 8, 32)`, each call uses the smallest that fits its
                rows. None: the batch sizes of the Inputs, or 32. Default: `None`.
            optimizer: An optimizer or its name, such as "adam"; None: the program does not train.
                Default: `None`.
            loss: A loss or its name, such as "mse"; None: the program only predicts. For several
                outputs, a list in their order or a dict by their names. A function of (y_true,
                y_pred) gets targets as passed to `model.fit`. Default: `None`.
            metrics: Metrics or their names, such as ["accuracy"]. For several outputs, a list of
                lists or a dict by their names. Default: `()`.
            dtype: "float32" or "float64". "mixed_bfloat16" and "mixed_float16" round the operands
                of matrix products to 16 bits, and compute everything else in float32. A program
                that only predicts then stores its matrices in 16 bits; one that trains keeps
                weights in float32, and scales gradients that are too small for float16. None: the
                policy of `zt.mixed_precision` when the model was created, or "float32". Default:
                `None`.
            threads: Number of worker threads on a CPU; None: one per core. Default: `None`.
            seed: The seed of dropout and shuffling; None: the seed of the model. Default: `None`.
            loss_weights: The weights of the losses of several outputs in their sum, a list or a
                dict; None: all 1. Default: `None`.
            decode: Whether the program can `generate`: False, True, or the number of sequences to
                generate at once. The model must be causal, and take (length,) integers. Default:
                `False`.
            matmul_precision: "float32"; "high": a device may compute float32 products from
                operands split into two parts with 20 significant bits, if that is faster;
                "tf32": a device may keep 10 mantissa bits of the operands of float32 products;
                "exact": float32, and convolutions are not transformed,
                which saves multiplications at errors of a few millionths of the largest result.
                Default: `"float32"`.
            sizes: The sizes of open axes, by name, such as `{"time": (64, 128)}`, or those of a
                single axis; each call uses the smallest that fits. None: determined by the data
                passed to `model.fit` and `model.predict`. Default: `None`.
            memory_limit: Maximum number of bytes of a step besides weights, inputs and outputs,
                such as "64MB". The backward pass then runs some kernels again, those that save the
                most memory for the least work; `program.recomputed` lists them. Default: `None`.
            weighted_metrics: Metrics to which the weights of rows apply, such as `sample_weight`
                and `class_weight` of `fit`; in the form of `metrics`. Default: `None`.

        Returns:
            A Program; or the model itself if the shapes of its inputs, the sizes of open axes or
            the targets of its loss are not known yet. It then compiles when they are.

        Raises:
            ConfigError: An argument is invalid.
            ShapeError: A layer does not fit its input; the message names it, both shapes and a fix.
            DeviceError: The device does not exist.
            Unsupported: The device lacks a feature that the model needs.
            OutOfMemory: `memory_limit` is too small; the message gives the smallest possible arena.

        Examples:
            >>> import numpy as np
            >>> import ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)])
            >>> program = model.compile("cpu", batch_size=8, optimizer="adam", loss="mse")
            >>> history = program.fit(np.ones((16, 4)), np.ones(16), verbose=0)
            >>> program.predict(np.ones((5, 4))).shape
            (5, 1)
        """
        if optimizer is None and _is_or_nears_optimizer(device):
            device, optimizer = "auto", device
            Optimizer.get(optimizer)  # an unknown one is an error before a missing loss
        if is_optimizer(loss):
            own = device if isinstance(device, str) and device in Loss.known else "mse"
            raise ConfigError(f"compile(loss={loss!r}) is an optimizer, which comes before the "
                              f"loss; write compile(optimizer={loss!r}, loss={own!r})")
        if weighted_metrics:
            if isinstance(weighted_metrics, str) or not isinstance(weighted_metrics, Iterable):
                raise ConfigError(f"weighted_metrics={weighted_metrics!r} is not a list; use the "
                                  "form of metrics, such as ['accuracy']")
            metrics = MetricLists(metrics, weighted_metrics)  # type: ignore[assignment]
        return self.compile_when_known(
            device=device, batch_size=batch_size, optimizer=optimizer, loss=loss,
            metrics=() if metrics is None else metrics,
            dtype=dtype or self.policy, threads=threads, seed=seed, loss_weights=loss_weights,
            decode=decode, matmul_precision=matmul_precision, sizes=sizes,
            memory_limit=memory_limit)

    def compile_now(self, *, device: str, threads: int | None, matmul_precision: str,
                    memory_limit: int | str | None, **arguments: Any) -> Program:
        """Compiles the model, whose inputs are known. Arguments are those of `compile`."""
        sizes = self.batch_sizes(arguments["batch_size"])
        arguments["batch_size"] = sizes if len(sizes) > 1 else sizes[0]

        def make(**arguments: Any) -> Program:
            from ztorch.compile.program_cache import build  # slow to import
            from ztorch.program.program import Program
            from ztorch.tune.autotune import autotune

            batch_size, dtype_ = arguments.pop("batch_size"), arguments.pop("dtype")
            traced = trace(self, batch_size, dtype_=dtype_, **arguments)

            def in_segments() -> dict[str, Graph]:
                from ztorch.graph.loop_segments import loops_in_segments

                with loops_in_segments():
                    return trace(self, batch_size, dtype_=dtype_, **arguments).functions

            autotune(traced.functions, device, self.name, threads, matmul_precision)
            executable = build(traced.functions, device, self.name, threads, matmul_precision,
                               memory_limit=memory_limit, with_less_memory=in_segments)
            program = Program(executable, traced.metadata, self.named_weights())
            program.explainer = self.explainer(device, threads, batch_size=batch_size,
                                               dtype_=dtype_, **arguments)
            return program

        program = self.keep(make, arguments)
        self._last_device = device
        return program


def _is_or_nears_optimizer(device: Any) -> bool:
    """Whether the first argument of `compile` is an optimizer, or a name similar to one, and more
    so than to any device; the error then mentions optimizers."""
    if is_optimizer(device) or not isinstance(device, str):
        return is_optimizer(device)
    if (backend := device.partition(":")[0]) in ("auto", "cpu"):
        return False  # before a search for installed backends, which takes 10 ms
    from ztorch.runtime.devices import device_names

    devices = device_names()
    likeness = max(agreement(name, device) for name in Optimizer.known)
    return backend not in devices and likeness >= VAGUE and (
        likeness > max(agreement(name, device) for name in devices))
