"""`BackendBuilder`: the object of a device with chosen memory limit, threads and precision."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ztorch.codegen.target import PRECISIONS
from ztorch.config import positive
from ztorch.errors import ConfigError, unknown
from ztorch.library.device_library import DeviceLibrary
from ztorch.library.programs import Options
from ztorch.machines.processors import SIMD_LEVELS
from ztorch.runtime.devices import known_backends

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}  # bytes


@dataclass(frozen=True)
class BackendBuilder:
    """Choices from which `build` makes the object of a device.

    Args:
        backend: The backend, such as "cpu" or "cuda".
        device_id: Number of the device; `None` means the first that may be used. Default: `None`.
        memory_limit: Bytes that its buffers may take together, or a string such as "512MB" or
            "2GiB"; `None` means the device's memory. Default: `None`.
        threads: Worker threads of the CPU; `None` means one for each core. Default: `None`.
        simd: SIMD level of the CPU, such as "avx2"; `None` means the best. Default: `None`.
        tensor_cores: Whether instructions that multiply matrices may be used. Default: `True`.
        precision: "float32"; for speed "high", where 20 bits of the operands of float32 products
            must count, or "tf32", where 10 are enough. Default: `"float32"`.

    Examples:
        >>> import ztorch as zt
        >>> builder = zt.backends.BackendBuilder("cpu", threads=1, simd="scalar",
        ...                                      memory_limit="1MB")
        >>> builder.build()
        <backend cpu:scalar>
        >>> builder.build().alloc(2_000_000)
        Traceback (most recent call last):
        ztorch.errors.OutOfMemory: cpu:scalar: 2,000,000 bytes, and 1,000,000 are left of the ...
    """

    backend: str
    device_id: int | None = None
    memory_limit: int | str | None = None
    threads: int | None = None
    simd: str | None = None
    tensor_cores: bool = True
    precision: str = "float32"

    def build(self) -> DeviceLibrary:
        """A new object of the device. Where that is not here, its `is_available` is False.

        Raises:
            ConfigError: A choice that the backend does not have, or an impossible one.
            UnknownName: There is no such backend, SIMD level or precision.
        """
        if self.backend not in known_backends():
            raise unknown("backend", self.backend, known_backends())
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        options = Options(self._device(), self._threads(), self.precision, bool(self.tensor_cores))
        return DeviceLibrary(options, _bytes(self.memory_limit))

    def _device(self) -> str:
        if self.backend != "cpu":
            if self.simd is not None:
                raise ConfigError(f"BackendBuilder(simd={self.simd!r}) is for the cpu, not for "
                                  f"{self.backend}")
            number = self.device_id
            if number is not None and (not isinstance(number, int) or number < 0):
                raise ConfigError(f"BackendBuilder(device_id={number!r}) must be a number from 0")
            return self.backend if number is None else f"{self.backend}:{number}"
        if self.device_id not in (None, 0):
            raise ConfigError(f"BackendBuilder(device_id={self.device_id!r}): there is one cpu, "
                              "number 0")
        levels = [level.name for level in SIMD_LEVELS]
        if self.simd is not None and self.simd not in levels:
            raise unknown("SIMD level", self.simd, levels)
        return "cpu" if self.simd is None else f"cpu:{self.simd}"

    def _threads(self) -> int | None:
        if self.threads is None:
            return None
        if self.backend not in ("cpu", "c"):
            raise ConfigError(f"BackendBuilder(threads={self.threads!r}) is for the cpu, not for "
                              f"{self.backend}")
        return positive("BackendBuilder(threads=...)", self.threads)


def _bytes(limit: int | str | None) -> int | None:
    """A limit in bytes.

    >>> _bytes("1.5 GiB"), _bytes("64kB"), _bytes(100)
    (1610612736, 64000, 100)
    """
    if limit is None or (isinstance(limit, int) and limit >= 0 and not isinstance(limit, bool)):
        return limit
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?i?)b", str(limit).strip().lower())
    if match is None or match[2] not in UNITS:
        raise ConfigError(f"BackendBuilder(memory_limit={limit!r}) must be a number of bytes, or a "
                          "string such as '512MB' or '2GiB'")
    return int(float(match[1]) * UNITS[match[2]])
