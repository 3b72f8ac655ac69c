"""`zt.array_api.fft`: the Fourier transforms of the array API standard for tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ztorch import dispatch
from ztorch.arrays.complex_tensor import ComplexTensor
from ztorch.arrays.placement import device as on_device
from ztorch.arrays.standard import named, on_tensors
from ztorch.arrays.tensor import Tensor, compute
from ztorch.dtypes import DType, complex_dtype
from ztorch.errors import DataError

Dtype = DType | str | None


def _transform(name: str, signature: inspect.Signature, real: bool) -> Callable[..., Any]:
    """A transform as a function of the standard. Transforms of real numbers are wrapped separately,
    because `zt.ops.rfft` returns pairs."""
    form = f"{name}_of_real" if real else name

    def call(x: Any, /, *args: Any, **attrs: Any) -> Any:
        if real and isinstance(x, ComplexTensor):
            raise DataError(f"fft.{name} transforms real numbers, not {x.dtype}; use fft."
                            f"{name.replace('rfft', 'fft').replace('ihfft', 'ifft')}")
        bound = signature.bind(x, *args, **attrs)
        bound.apply_defaults()
        return dispatch.on_complex(form, bound.args, bound.kwargs)

    named(call, name, __name__, f"{name}{signature}: the transform of tensors.")
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


_ALONG_ONE = inspect.signature(lambda x, /, *, n=None, axis=-1, norm="backward": None)
_ALONG_SEVERAL = inspect.signature(lambda x, /, *, s=None, axes=None, norm="backward": None)
for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    globals()[_name] = _transform(_name, _ALONG_ONE, real=_name in ("rfft", "ihfft"))
for _name in ("fftn", "ifftn", "rfftn", "irfftn"):
    globals()[_name] = _transform(_name, _ALONG_SEVERAL, real=_name == "rfftn")
for _name in ("fftshift", "ifftshift"):
    globals()[_name] = on_tensors(_name, inspect.signature(lambda x, /, *, axes=None: None),
                                  __name__)


def _frequencies(name: str) -> Callable[..., Any]:
    def call(n: int, /, *, d: float = 1.0, dtype: Dtype = None, device: str | None = None
             ) -> Tensor:
        if complex_dtype(dtype):
            raise DataError(f"fft.{name} gives real numbers, not {dtype}")
        if device is None:
            y: Tensor = compute(name, (n, d), {"dtype": dtype or "float32"})
            return y
        with on_device(device):
            return call(n, d=d, dtype=dtype)

    return named(call, name, __name__, f"The frequency of each element: `zt.ops.{name}`.")


fftfreq, rfftfreq = map(_frequencies, ("fftfreq", "rfftfreq"))
