"""Calls of ROCm's HIP library and of its run-time compiler, by ctypes."""

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
NON_BLOCKING = 1  # hipStreamNonBlocking: no implicit order with the default stream
# Members of hipDeviceAttribute_t, with the same values in ROCm 5, 6 and 7.
INTEGRATED, MAX_THREADS, COMPUTE_UNITS, SHARED_BYTES, WAVE_SIZE = 16, 56, 63, 74, 87

NOBITS = 8  # SHT_NOBITS, a section that takes no bytes of the file
AMDGPU = 224  # EM_AMDGPU, the machine of an ELF file

_PTR, _SIZE_T = ctypes.c_void_p, ctypes.c_size_t


class Out(NamedTuple):
    """An output parameter: a pointer through which a call returns a result of this type."""

    kind: Any


class Dim3(ctypes.Structure):
    """dim3: numbers of workgroups or threads."""

    _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]


class KernelNode(ctypes.Structure):
    """hipKernelNodeParams: a launch in a graph."""

    _fields_ = [("blockDim", Dim3), ("extra", _PTR), ("func", _PTR), ("gridDim", Dim3),
                ("kernelParams", _PTR), ("sharedMemBytes", ctypes.c_uint)]


# The parameters of each function. `call_driver` supplies the arguments for `Out` parameters.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "hipInit": (ctypes.c_uint,),
    "hipRuntimeGetVersion": (Out(ctypes.c_int),),
    "hipGetDeviceCount": (Out(ctypes.c_int),),
    "hipSetDevice": (ctypes.c_int,),
    "hipDeviceGetName": (_PTR, ctypes.c_int, ctypes.c_int),
    "hipDeviceTotalMem": (Out(_SIZE_T), ctypes.c_int),
    "hipDeviceGetAttribute": (Out(ctypes.c_int), ctypes.c_int, ctypes.c_int),
    "hipGetDevicePropertiesR0600": (_PTR, ctypes.c_int),
    "hipGetDeviceProperties": (_PTR, ctypes.c_int),
    "hipGetLastError": (),
    "hipMalloc": (Out(_PTR), _SIZE_T),
    "hipFree": (_PTR,),
    "hipHostRegister": (_PTR, _SIZE_T, ctypes.c_uint),
    "hipHostUnregister": (_PTR,),
    "hipMemGetInfo": (Out(_SIZE_T), Out(_SIZE_T)),
    "hipMemcpyAsync": (_PTR, _PTR, _SIZE_T, ctypes.c_int, _PTR),
    "hipStreamCreateWithFlags": (Out(_PTR), ctypes.c_uint),
    "hipStreamDestroy": (_PTR,),
    "hipStreamSynchronize": (_PTR,),
    "hipStreamWaitEvent": (_PTR, _PTR, ctypes.c_uint),
    "hipEventCreateWithFlags": (Out(_PTR), ctypes.c_uint),
    "hipEventRecord": (_PTR, _PTR),
    "hipEventSynchronize": (_PTR,),
    "hipEventDestroy": (_PTR,),
    "hipModuleLoadData": (Out(_PTR), _PTR),
    "hipModuleUnload": (_PTR,),
    "hipModuleGetFunction": (Out(_PTR), _PTR, ctypes.c_char_p),
    "hipGraphCreate": (Out(_PTR), ctypes.c_uint),
    "hipGraphAddKernelNode": (Out(_PTR), _PTR, _PTR, _SIZE_T, _PTR),
    "hipGraphAddEmptyNode": (Out(_PTR), _PTR, _PTR, _SIZE_T),
    "hipGraphAddMemcpyNode1D": (Out(_PTR), _PTR, _PTR, _SIZE_T, _PTR, _PTR, _SIZE_T,
                                ctypes.c_int),
    "hipGraphInstantiateWithFlags": (Out(_PTR), _PTR, ctypes.c_ulonglong),
    "hipGraphDestroy": (_PTR,),
    "hipGraphLaunch": (_PTR, _PTR),
    "hipGraphExecDestroy": (_PTR,),
    "hiprtcCreateProgram": (_PTR, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, _PTR, _PTR),
    "hiprtcCompileProgram": (_PTR, ctypes.c_int, _PTR),
    "hiprtcGetProgramLogSize": (_PTR, _PTR),
    "hiprtcGetProgramLog": (_PTR, _PTR),
    "hiprtcGetCodeSize": (_PTR, _PTR),
    "hiprtcGetCode": (_PTR, _PTR),
    "hiprtcDestroyProgram": (_PTR,),
}


@functools.cache
def library() -> Any:
    """The newest installed HIP library, or None."""
    return _first_loadable(LIBRARIES)


@functools.cache
def compiler() -> Any:
    """The library that compiles HIP C++ at run time: hiprtc, or in old versions the HIP library."""
    return _first_loadable(COMPILERS) or library()


def _first_loadable(names: tuple[str, ...]) -> Any:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def call_driver(where: str, name: str, *args: Any) -> Any:
    """Calls a function of HIP and returns its results without the status.

    Args:
        where: The device, for error messages.
        name: The function.
        *args: Its arguments, without the output parameters.

    Returns:
        None, a number, or a list of numbers.

    Raises:
        OutOfMemory: The device has no memory left.
        DeviceError: Any other failure, with the name of the call and HIP's code.
    """
    hip = library()
    results = [kind.kind() for kind in SIGNATURES[name] if isinstance(kind, Out)]
    code = _invoke(hip, name, *_call_arguments(name, results, args))
    if code:
        symbol, text = (_error_text(hip, f"hipGetError{part}", code) for part in ("Name", "String"))
        _invoke(hip, "hipGetLastError")  # clears the error, so that no later call reports it
        kind = OutOfMemory if code == OUT_OF_MEMORY else DeviceError
        raise kind(f"{where}: {name}: {symbol or code} ({text})")
    values = [result.value or 0 for result in results]  # ctypes returns None for a null pointer
    return values if len(values) > 1 else values[0] if values else None


def _call_arguments(name: str, results: list[Any], args: tuple[Any, ...]) -> list[Any]:
    """All arguments of a call, including the addresses of its results."""
    addresses, values = iter(map(ctypes.byref, results)), map(_converted, args)
    return [next(addresses if isinstance(kind, Out) else values) for kind in SIGNATURES[name]]


def _converted(value: Any) -> Any:
    """Converts a list of handles to an array of pointers; other values are unchanged."""
    return (_PTR * len(value))(*value) if isinstance(value, list) else value


def _invoke(hip: Any, name: str, *args: Any) -> int:
    function = getattr(hip, name)
    function.argtypes = [_PTR if isinstance(kind, Out) else kind for kind in SIGNATURES[name]]
    return int(function(*args))


def _error_text(hip: Any, name: str, code: int) -> str:
    function = getattr(hip, name)
    function.restype = ctypes.c_char_p
    return (function(code) or b"").decode(errors="replace")


def is_complete(image: bytes) -> bool:
    """Whether these bytes are a complete code object.

    HIP gets no length, so with damaged headers it would read beyond the end.

    >>> is_complete(b"no code at all")
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
        offset, _, _, file_bytes = struct.unpack_from("<QQQQ", image, segments + entry * k + 8)
        ends.append(offset + file_bytes)
    for k in range(number):
        section = struct.unpack_from("<IQQQQ", image, sections + size * k + 4)
        kind, _, _, offset, file_bytes = section
        ends.append(offset + (0 if kind == NOBITS else file_bytes))
    return max(ends) <= len(image)


def compile_code(where: str, text: bytes, chip: str) -> bytes:
    """Compiles HIP C++ for a chip and returns the code object. Errors contain the compiler's
    messages."""
    rtc = compiler()
    if rtc is None or not hasattr(rtc, "hiprtcCreateProgram"):
        raise DeviceError(f"{where}: code in HIP C++ needs the compiler hiprtc, which is not "
                          f"installed; compile for rocm:{chip} instead")
    program, size = _PTR(), _SIZE_T()

    def build(name: str, *args: Any) -> None:
        code = _invoke(rtc, name, *args)
        if code:
            raise DeviceError(f"{where}: {name}: {_error_text(rtc, 'hiprtcGetErrorString', code)}: "
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
        _invoke(rtc, "hiprtcDestroyProgram", ctypes.byref(program))


def _log(rtc: Any, program: Any) -> str:
    size = _SIZE_T()
    if not program or _invoke(rtc, "hiprtcGetProgramLogSize", program, ctypes.byref(size)):
        return ""
    log = ctypes.create_string_buffer(size.value + 1)
    _invoke(rtc, "hiprtcGetProgramLog", program, log)
    return log.value.decode(errors="replace").strip()[:4000]
