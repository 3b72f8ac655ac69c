"""ROCm's HIP library and its run-time compiler, by ctypes. Every return code is checked."""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import Any, NamedTuple

from ztorch.errors import DeviceError, OutOfMemory

LIBRARIES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
             "/opt/rocm/lib/libamdhip64.so")
COMPILERS = ("libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so",
             "/opt/rocm/lib/libhiprtc.so")

OUT_OF_MEMORY = 2  # hipErrorOutOfMemory
COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 3}  # hipMemcpyKind
NON_BLOCKING = 1  # hipStreamNonBlocking: not in one order with the default stream
# hipDeviceAttribute_t; the same numbers in ROCm 5, 6 and 7.
INTEGRATED, THREADS, UNITS, SHARED, WAVE = 16, 56, 63, 74, 87

AMDGPU = 224  # the machine of ELF files

_P, _N = ctypes.c_void_p, ctypes.c_size_t


class Out(NamedTuple):
    """An argument that a call writes its answer to."""

    kind: Any


class Dim3(ctypes.Structure):
    """Three numbers, of groups or of threads."""

    _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]


class KernelNode(ctypes.Structure):
    """hipKernelNodeParams: a launch in a graph. The function is that of a module."""

    _fields_ = [("blockDim", Dim3), ("extra", _P), ("func", _P), ("gridDim", Dim3),
                ("kernelParams", _P), ("sharedMemBytes", ctypes.c_uint)]


# The arguments of each function; `ask` supplies those that are `Out` itself.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "hipInit": (ctypes.c_uint,),
    "hipRuntimeGetVersion": (Out(ctypes.c_int),),
    "hipGetDeviceCount": (Out(ctypes.c_int),),
    "hipSetDevice": (ctypes.c_int,),
    "hipDeviceGetName": (_P, ctypes.c_int, ctypes.c_int),
    "hipDeviceTotalMem": (Out(_N), ctypes.c_int),
    "hipDeviceGetAttribute": (Out(ctypes.c_int), ctypes.c_int, ctypes.c_int),
    "hipGetDevicePropertiesR0600": (_P, ctypes.c_int),
    "hipGetDeviceProperties": (_P, ctypes.c_int),
    "hipGetLastError": (),
    "hipMalloc": (Out(_P), _N),
    "hipFree": (_P,),
    "hipHostRegister": (_P, _N, ctypes.c_uint),
    "hipHostUnregister": (_P,),
    "hipMemGetInfo": (Out(_N), Out(_N)),
    "hipMemcpyAsync": (_P, _P, _N, ctypes.c_int, _P),
    "hipStreamCreateWithFlags": (Out(_P), ctypes.c_uint),
    "hipStreamDestroy": (_P,),
    "hipStreamSynchronize": (_P,),
    "hipStreamWaitEvent": (_P, _P, ctypes.c_uint),
    "hipEventCreateWithFlags": (Out(_P), ctypes.c_uint),
    "hipEventRecord": (_P, _P),
    "hipEventSynchronize": (_P,),
    "hipEventDestroy": (_P,),
    "hipModuleLoadData": (Out(_P), _P),
    "hipModuleUnload": (_P,),
    "hipModuleGetFunction": (Out(_P), _P, ctypes.c_char_p),
    "hipGraphCreate": (Out(_P), ctypes.c_uint),
    "hipGraphAddKernelNode": (Out(_P), _P, _P, _N, _P),
    "hipGraphAddEmptyNode": (Out(_P), _P, _P, _N),
    "hipGraphAddMemcpyNode1D": (Out(_P), _P, _P, _N, _P, _P, _N, ctypes.c_int),
    "hipGraphInstantiateWithFlags": (Out(_P), _P, ctypes.c_ulonglong),
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
    """The newest HIP library that is installed, or None."""
    return _opened(LIBRARIES)


@functools.cache
def compiler() -> Any:
    """The library that compiles HIP's C++ at run time: its own, or in old versions HIP's."""
    return _opened(COMPILERS) or library()


def _opened(names: tuple[str, ...]) -> Any:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def ask(where: str, name: str, *args: Any) -> Any:
    """The results of a call besides its status: None, a number, or a list of them. A failure is
    an error with the call and its code."""
    hip = library()
    answers = [kind.kind() for kind in SIGNATURES[name] if isinstance(kind, Out)]
    code = _called(hip, name, *_with_answers(name, answers, args))
    if code:
        symbol, text = (_said(hip, f"hipGetError{part}", code) for part in ("Name", "String"))
        _called(hip, "hipGetLastError")  # clears it, so that no later call is blamed
        kind = OutOfMemory if code == OUT_OF_MEMORY else DeviceError
        raise kind(f"{where}: {name}: {symbol or code} ({text})")
    values = [answer.value or 0 for answer in answers]  # ctypes says None for a null pointer
    return values if len(values) > 1 else values[0] if values else None


def _with_answers(name: str, answers: list[Any], args: tuple[Any, ...]) -> list[Any]:
    """All arguments of a call: those given, and addresses for its answers."""
    addresses, values = iter(map(ctypes.byref, answers)), map(_converted, args)
    return [next(addresses if isinstance(kind, Out) else values) for kind in SIGNATURES[name]]


def _converted(value: Any) -> Any:
    """A list of handles as an array of them; others as they are."""
    return (_P * len(value))(*value) if isinstance(value, list) else value


def _called(hip: Any, name: str, *args: Any) -> int:
    function = getattr(hip, name)
    function.argtypes = [_P if isinstance(kind, Out) else kind for kind in SIGNATURES[name]]
    return int(function(*args))


def _said(hip: Any, name: str, code: int) -> str:
    function = getattr(hip, name)
    function.restype = ctypes.c_char_p
    return (function(code) or b"").decode(errors="replace")


def whole(image: bytes) -> bool:
    """Whether this is a code object with all its parts. HIP is told no length, so it would read as
    far as damaged headers say.

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
    """The code object of HIP's C++ for a chip; the compiler's messages are in the error."""
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
