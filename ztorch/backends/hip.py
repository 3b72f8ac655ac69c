"""HIP's library of ROCm, and its compiler, by ctypes: calls whose every code is checked."""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import Any

from ztorch.errors import DeviceError, OutOfMemory

LIBRARIES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
             "/opt/rocm/lib/libamdhip64.so")
COMPILERS = ("libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so",
             "/opt/rocm/lib/libhiprtc.so")

# HIP's numbers; those of attributes are the same in ROCm 5, 6 and 7.
OUT_OF_MEMORY = 2
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
NON_BLOCKING, THREAD_LOCAL = 1, 1
INTEGRATED, THREADS, UNITS, SHARED, WAVE = 16, 56, 63, 74, 87
LOST = frozenset(("hipErrorIllegalAddress", "hipErrorLaunchFailure", "hipErrorLaunchTimeOut",
                  "hipErrorAssert", "hipErrorECCNotCorrectable", "hipErrorContextIsDestroyed"))
"""Errors after which a process gets nothing but errors from its device."""

AMDGPU = 224  # the machine of ELF files

_P, _N = ctypes.c_void_p, ctypes.c_size_t
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "hipInit": (ctypes.c_uint,),
    "hipRuntimeGetVersion": (_P,),
    "hipGetDeviceCount": (_P,),
    "hipSetDevice": (ctypes.c_int,),
    "hipDeviceGetName": (_P, ctypes.c_int, ctypes.c_int),
    "hipDeviceTotalMem": (_P, ctypes.c_int),
    "hipDeviceGetAttribute": (_P, ctypes.c_int, ctypes.c_int),
    "hipGetDevicePropertiesR0600": (_P, ctypes.c_int),
    "hipGetDeviceProperties": (_P, ctypes.c_int),
    "hipGetLastError": (),
    "hipMalloc": (_P, _N),
    "hipFree": (_P,),
    "hipMemGetInfo": (_P, _P),
    "hipMemcpyAsync": (_P, _P, _N, ctypes.c_int, _P),
    "hipStreamCreateWithFlags": (_P, ctypes.c_uint),
    "hipStreamDestroy": (_P,),
    "hipStreamSynchronize": (_P,),
    "hipModuleLoadData": (_P, _P),
    "hipModuleUnload": (_P,),
    "hipModuleGetFunction": (_P, _P, ctypes.c_char_p),
    "hipModuleLaunchKernel": (_P, *(ctypes.c_uint,) * 7, _P, _P, _P),
    "hipStreamBeginCapture": (_P, ctypes.c_int),
    "hipStreamEndCapture": (_P, _P),
    "hipGraphInstantiate": (_P, _P, _P, _P, _N),
    "hipGraphDestroy": (_P,),
    "hipGraphLaunch": (_P, _P),
    "hipGraphExecDestroy": (_P,),
    "hiprtcCreateProgram": (_P, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, _P, _P),
    "hiprtcCompileProgram": (_P, ctypes.c_int, _P),
    "hiprtcGetProgramLogSize": (_P, _P),
    "hiprtcGetProgramLog": (_P, _P),
    "hiprtcGetCodeSize": (_P, _P),
    "hiprtcGetCode": (_P, _P),
    "hiprtcDestroyProgram": (_P,),
}



@functools.cache
def library() -> Any:
    """The newest of these that is installed, or None; looking costs no more than their names."""
    return _opened(LIBRARIES)


@functools.cache
def compiler() -> Any:
    """What compiles HIP's C++ at run time: a library of its own, or before that part of HIP's."""
    return _opened(COMPILERS) or library()


def _opened(names: tuple[str, ...]) -> Any:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def call(where: str, name: str, *args: Any) -> None:
    """A call that must succeed; anything else is an error with the call and its code."""
    hip = library()
    code = _called(hip, name, *args)
    if not code:
        return
    symbol, text = (_said(hip, f"hipGetError{what}", code) for what in ("Name", "String"))
    _called(hip, "hipGetLastError")  # forgets it, so that no later call is blamed
    kind = OutOfMemory if code == OUT_OF_MEMORY else DeviceError
    raise kind(f"{where}: {name}: {symbol or code} ({text})")


def asked(where: str, name: str, kind: Any, *args: Any) -> Any:
    """What a call writes to its first argument."""
    out = kind()
    call(where, name, ctypes.byref(out), *args)
    return out.value


def _called(hip: Any, name: str, *args: Any) -> int:
    function = getattr(hip, name)
    function.argtypes = SIGNATURES[name]
    return int(function(*args))


def _said(hip: Any, name: str, code: int) -> str:
    function = getattr(hip, name)
    function.restype = ctypes.c_char_p
    return (function(code) or b"").decode(errors="replace")


def whole(image: bytes) -> bool:
    """Whether this is a code object with all its parts: HIP is told no length, and believes what
    headers say.

    >>> whole(b"no code at all")
    False
    """
    if len(image) < 64 or image[:6] != b"\x7fELF\x02\x01":
        return False
    machine, = struct.unpack_from("<H", image, 18)
    segments, sections = struct.unpack_from("<QQ", image, 32)
    entry, count, size, number, names = struct.unpack_from("<5H", image, 54)
    ends = [segments + entry * count, sections + size * number]
    if machine != AMDGPU or (entry, size) != (56, 64) or names >= number or max(ends) > len(image):
        return False
    for k in range(count):
        offset, _, _, filled = struct.unpack_from("<QQQQ", image, segments + entry * k + 8)
        ends.append(offset + filled)
    for k in range(number):
        kind, _, _, offset, filled = struct.unpack_from("<IQQQQ", image, sections + size * k + 4)
        ends.append(offset + (filled if kind != 8 else 0))  # 8: zeros, which no file holds
    return max(ends) <= len(image)


def compiled(where: str, text: bytes, chip: str) -> bytes:
    """The code object of HIP's C++ for a chip; what the compiler says of it is in the error."""
    rtc = compiler()
    if rtc is None or not hasattr(rtc, "hiprtcCreateProgram"):
        raise DeviceError(f"{where}: code in HIP's C++ is compiled by hiprtc, which is not "
                          f"installed; compile for rocm:{chip} instead")
    program, size = _P(), _N()

    def build(name: str, *args: Any) -> None:
        code = _called(rtc, name, *args)
        if code:
            raise DeviceError(f"{where}: {name}: {_said(rtc, 'hiprtcGetErrorString', code)}: "
                              f"{_log(rtc, program)}")

    build("hiprtcCreateProgram", ctypes.byref(program), text, b"kernels.hip", 0, None, None)
    try:
        options = (ctypes.c_char_p * 3)(f"--offload-arch={chip}".encode(), b"-std=c++17", b"-O3")
        build("hiprtcCompileProgram", program, len(options), options)
        build("hiprtcGetCodeSize", program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        build("hiprtcGetCode", program, code)
        return code.raw
    finally:
        _called(rtc, "hiprtcDestroyProgram", ctypes.byref(program))


def _log(rtc: Any, program: Any) -> str:
    size = _N()
    if not program or _called(rtc, "hiprtcGetProgramLogSize", program, ctypes.byref(size)):
        return ""
    log = ctypes.create_string_buffer(size.value + 1)
    _called(rtc, "hiprtcGetProgramLog", program, log)
    return log.value.decode(errors="replace").strip()[:4000]
