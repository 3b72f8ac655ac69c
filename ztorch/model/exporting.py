"""Export of models: artifacts for other devices, C, browsers and ONNX."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ztorch import dispatch
from ztorch.arguments import checked
from ztorch.errors import ConfigError
from ztorch.model.own_steps import OwnSteps
from ztorch.model.programs import ModelPrograms
from ztorch.model.trace import trace
from ztorch.runtime.buckets import ROWS
from ztorch.terminal.work_line import working


class ExportedNetwork(OwnSteps, abstract=True):
    """A network that can be compiled for other machines."""

    _programs: ModelPrograms | None = None  # of the last compile

    @checked
    def export(self, path: str | os.PathLike[str], device: str = "auto", *,
               format: str | None = None, batch_size: int | Sequence[int] | None = None,
               train: bool = False, loss: Any = None, optimizer: Any = None, metrics: Any = None,
               loss_weights: Any = None, dtype: Any = None, sizes: Any = None,
               decode: bool | int | None = None, samples: Any = None,
               letters: str | None = None) -> list[Path]:
        """Compiles the model with its weights for a device, and writes the result. The device need
        not be in this machine, and the model need not be compiled.

        Omitted arguments are those of the last `compile`, or its defaults.

        Args:
            path: A file named .zt or .onnx, or a folder for C and the web.
            device: "cpu", "cpu:avx2", "cpu:neon", "cuda:sm_90", "webgpu" or another device that
                `compile` accepts or `ztorch devices` lists; "c" for C source. Default: `"auto"`.
            format: "zt" for an artifact, "onnx", "c" for a C library with its header or for C
                source, "web" for a web page; None: by the suffix of the path. Default: `None`.
            batch_size: The batch size, or several sizes. None: as in `compile`, and 1 for a web
                page and a C library whose model declares none. Default: `None`.
            train: Whether the written program can train. Default: `False`.
            loss: As in `compile`; for `train=True`. Default: `None`.
            optimizer: As in `compile`; for `train=True`. Default: `None`.
            metrics: As in `compile`; for `train=True`. Default: `None`.
            loss_weights: As in `compile`; for `train=True`. Default: `None`.
            dtype: As in `compile`. Default: `None`.
            sizes: As in `compile`. Default: `None`.
            decode: As in `compile`. Default: `None`.
            samples: Rows that a web page offers: x, (x, y), or a table if the model has a pipeline
                for tables. Default: `None`.
            letters: For a web page of a text model, the letter of each number. Default: `None`.

        Returns:
            The paths of the files.

        Raises:
            ConfigError: An argument is invalid, or the path does not determine the format.
            DeviceError: The device does not exist.
            Unsupported: The format or the device lacks a feature that the model needs.

        Examples:
            >>> import os, tempfile, ztorch as zt
            >>> model = zt.Sequential([zt.layers.Input((4,)), zt.layers.Dense(1)], name="small")
            >>> folder = tempfile.mkdtemp()
            >>> files = model.export(os.path.join(folder, "arm.zt"), "cpu:neon", batch_size=1)
            >>> files = model.export(folder, "c", format="c", batch_size=1)
            >>> [file.name for file in files]
            ['small.c', 'small_example.c', 'small.h']
        """
        from ztorch.compile.export import chosen_format, export_traced  # imports the compiler

        self.need_call("exported")
        training = {"loss": loss, "optimizer": optimizer, "metrics": metrics,
                    "loss_weights": loss_weights}
        kind = chosen_format(path, device, format)
        if not train and (idle := [name for name, value in training.items() if value is not None]):
            raise ConfigError(f"export({idle[0]}=...) requires training: add train=True, or omit "
                              "it")
        page = {"samples": samples, "letters": letters}
        page = {name: value for name, value in page.items() if value is not None}
        if page and kind != "web":
            raise ConfigError(f"export({next(iter(page))}=...) is for a web page: add "
                              "format='web', or omit it")
        if kind == "onnx":
            return self._export_onnx(path, train, batch_size, dtype, sizes)
        before = {} if self._programs is None else self._programs.arguments
        options = {"batch_size": batch_size, "dtype": dtype, "sizes": sizes, "decode": decode,
                   "seed": None}
        if train:
            options |= training
        arguments: dict[str, Any] = {name: before.get(name) if value is None else value
                                     for name, value in options.items()}
        if train and (arguments["loss"] is None or arguments["optimizer"] is None):
            raise ConfigError("export(train=True) needs a loss and an optimizer: compile the model "
                              "with them, or add them, such as loss='mse', optimizer='adam'")
        if batch_size is None and (kind in ("c", "web") or not before):
            arguments["batch_size"] = self.declared_batch_size or (
                1 if kind in ("c", "web") and not train else ROWS)
        with working(f"export {self.name}"):
            traced = trace(
                self, arguments.pop("batch_size"), dtype_=arguments.pop("dtype") or self.policy,
                metrics=arguments.pop("metrics", None) or (),
                decode=arguments.pop("decode") or False, **arguments)
            return export_traced(traced, path, device, kind, page)

    def _export_onnx(self, path: str | os.PathLike[str], train: bool, batch_size: Any, dtype: Any,
                     sizes: Any) -> list[Path]:
        if train:
            raise ConfigError("an ONNX file only predicts; omit train, or write a .zt")
        if isinstance(batch_size, (list, tuple)):
            raise ConfigError("an ONNX file takes any batch size, or one; omit batch_size or "
                              "pass one number, or write a .zt")
        dispatch.save_onnx(self, path, batch_size=batch_size, dtype=dtype or self.policy,
                           sizes=sizes)
        return [Path(path)]
