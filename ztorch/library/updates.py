"""Steps of optimizers over many tensors at once."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from ztorch.config import elements, positive
from ztorch.dtypes import DType
from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.library.buffers import Strided, need_dtypes, need_shape, need_tensors
from ztorch.library.elementwise import result_of
from ztorch.library.memory import DeviceStore
from ztorch.library.programs import Gathered, Number
from ztorch.library.raw_device import RawDevice
from ztorch.library.strides import has_gaps, read


class Updates(RawDevice):
    """The routines that change weights."""

    def fused_adam_step(self, weights: Sequence[Strided], gradients: Sequence[Strided],
                        m: Sequence[Strided], v: Sequence[Strided], *, step: int,
                        learning_rate: float = 0.001, beta_1: float = 0.9, beta_2: float = 0.999,
                        epsilon: float = 1e-7, weight_decay: float = 0.0) -> None:
        """One step of Adam on many tensors, in one call of one program. On a device one launch
        updates all tensors of a dtype that have no gaps.

        Weights, `m` and `v` change in place. `step` and `learning_rate` may be others at each call.

        Args:
            weights: The weights.
            gradients: A gradient of each weight, of the same shape and dtype.
            m: Running mean of each gradient, likewise.
            v: Running mean of each squared gradient, likewise.
            step: Number of the step, 1 for the first.
            learning_rate: The learning rate. Default: `0.001`.
            beta_1: Decay of `m`. Default: `0.9`.
            beta_2: Decay of `v`. Default: `0.999`.
            epsilon: Added to the square root of `v`. Default: `1e-07`.
            weight_decay: Before the step, `learning_rate * weight_decay * weight` is subtracted.
                Default: `0.0`.

        Examples:
            >>> import numpy as np, ztorch as zt
            >>> cpu = zt.backends.get("cpu")
            >>> w, g, m, v = (np.array([x], np.float32) for x in (1, 5, 0, 0))
            >>> cpu.fused_adam_step(*([cpu.wrap(a).tensor((1,))] for a in (w, g, m, v)), step=1,
            ...                     learning_rate=0.5)
            >>> float(w[0].round(4))
            0.5
        """
        lists = {"w": weights, "g": gradients, "m": m, "v": v}
        for label, tensors in lists.items():
            for k, t in enumerate(elements(f"fused_adam_step({label}=...)", tensors)):
                need_tensors("fused_adam_step", **{f"{label}[{k}]": t})
        if not len(weights) == len(gradients) == len(m) == len(v):
            raise ConfigError(f"fused_adam_step: {len(weights)} weights, {len(gradients)} "
                              f"gradients, {len(m)} m and {len(v)} v; there is one of each")
        positive("fused_adam_step: step", step)
        sized = [k for k, w in enumerate(weights) if w.size]
        operands: dict[str, Strided] = {}
        for k in sized:
            self._need_dtype("fused_adam_step", weights[k].dtype)
            for label, tensors in lists.items():
                need_dtypes("fused_adam_step", weights[k].dtype, **{f"{label}[{k}]": tensors[k]})
                need_shape("fused_adam_step", f"{label}[{k}]", tensors[k], weights[k].shape)
                operands[f"{label}{k}"] = tensors[k]
        if not sized:
            return
        dtypes = dict.fromkeys(weights[k].dtype for k in sized)
        numbers = {f"{name}/{d!r}": Number(float(value), d) for d in dtypes
                   for name, value in (("step", step), ("rate", learning_rate))}
        constants = beta_1, beta_2, epsilon, weight_decay
        if isinstance(self._store, DeviceStore) and not any(
                has_gaps(t.shape, t.strides) for t in operands.values()):
            return self._one_launch(lists, sized, constants, numbers)

        def function(values: Mapping[str, Value]) -> dict[str, Value]:
            results: dict[str, Value] = {}
            for k in sized:
                parts = (read(values[f"{n}{k}"], t[k].shape, t[k].strides)
                         for n, t in lists.items())
                count, rate = (values[f"{n}/{weights[k].dtype!r}"] for n in ("step", "rate"))
                new = OPS.fused_adam_step(*parts, count, rate, *constants)
                for label, y in zip("wmv", new, strict=True):
                    name = f"{label}{k}"
                    results[name] = result_of("fused_adam_step", y, operands[name], values, name)
            return results

        writes = {n: t for n, t in operands.items() if n[0] != "g"}
        self._run("fused_adam_step", constants, function, operands, writes, numbers)

    def _one_launch(self, lists: Mapping[str, Sequence[Strided]], sized: Sequence[int],
                    constants: tuple[float, ...], numbers: Mapping[str, Number]) -> None:
        """The tensors of each dtype as one long tensor, so that one launch updates all of them."""
        for d in dict.fromkeys(lists["w"][k].dtype for k in sized):
            same = [k for k in sized if lists["w"][k].dtype is d]
            reads = {n: Gathered(tuple(self._extent(t[k]) for k in same), d)
                     for n, t in lists.items()}
            of_dtype = {n: x for n, x in numbers.items() if x.dtype is d}
            self._ready().run("fused_adam_step", constants, functools.partial(_step, d, constants),
                              reads, {n: x for n, x in reads.items() if n != "g"}, of_dtype)


def _step(d: DType, constants: tuple[float, ...], v: Mapping[str, Value]) -> dict[str, Value]:
    new = OPS.fused_adam_step(v["w"], v["g"], v["m"], v["v"], v[f"step/{d!r}"], v[f"rate/{d!r}"],
                              *constants)
    return dict(zip("wmv", new, strict=True))
