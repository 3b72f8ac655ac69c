"""Steps of optimizers over many tensors at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ztorch.errors import ConfigError
from ztorch.graph.op import OPS
from ztorch.graph.value import Value
from ztorch.library.buffers import Strided
from ztorch.library.elementwise import result_of
from ztorch.library.programs import Number
from ztorch.library.raw_device import RawDevice, need_dtypes, need_shape
from ztorch.library.strides import read


class Updates(RawDevice):
    """The routines that change weights."""

    def fused_adam_step(self, weights: Sequence[Strided], gradients: Sequence[Strided],
                        m: Sequence[Strided], v: Sequence[Strided], *, step: int,
                        learning_rate: float = 0.001, beta_1: float = 0.9, beta_2: float = 0.999,
                        epsilon: float = 1e-7, weight_decay: float = 0.0) -> None:
        """One step of Adam on many tensors, in one call of one program.

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
        if not len(weights) == len(gradients) == len(m) == len(v):
            raise ConfigError(f"fused_adam_step: {len(weights)} weights, {len(gradients)} "
                              f"gradients, {len(m)} m and {len(v)} v; there is one of each")
        if step < 1:
            raise ConfigError(f"fused_adam_step: step={step} must be 1 or more")
        lists = {"w": weights, "g": gradients, "m": m, "v": v}
        sized = [k for k, w in enumerate(weights) if w.size]
        operands: dict[str, Strided] = {}
        for k in sized:
            for label, tensors in lists.items():
                need_dtypes("fused_adam_step", weights[k].dtype, **{f"{label}[{k}]": tensors[k]})
                need_shape("fused_adam_step", f"{label}[{k}]", tensors[k], weights[k].shape)
                operands[f"{label}{k}"] = tensors[k]
        if not sized:
            return
        dtypes = dict.fromkeys(weights[k].dtype for k in sized)
        numbers = {f"{name}/{d!r}": Number(float(value), d) for d in dtypes
                   for name, value in (("step", step), ("rate", learning_rate))}

        def function(values: Mapping[str, Value]) -> dict[str, Value]:
            results: dict[str, Value] = {}
            for k in sized:
                w, g, mean, square = (read(values[f"{n}{k}"], t[k].shape, t[k].strides)
                                      for n, t in lists.items())
                count, rate = (values[f"{n}/{w.dtype!r}"] for n in ("step", "rate"))
                new = OPS.fused_adam_step(w, g, mean, square, count, rate, beta_1, beta_2, epsilon,
                                          weight_decay)
                for label, y in zip("wmv", new, strict=True):
                    name = f"{label}{k}"
                    results[name] = result_of("fused_adam_step", y, operands[name], values, name)
            return results

        writes = {n: t for n, t in operands.items() if n[0] != "g"}
        self._run("fused_adam_step", (beta_1, beta_2, epsilon, weight_decay), function, operands,
                  writes, numbers)
