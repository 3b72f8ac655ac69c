"""Our calls of HIP beside the headers of ROCm: these numbers were read in hip_runtime_api.h, driver_types.h and hiprtc.h
of ROCm 5.7, 6.2 and 6.3, with a C++ compiler for the sizes and places, and in what AMD generates for HIP Python 7.2.2 from the
headers of ROCm 7.2.2. They agree."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tests.cases.grouping import together
from ztorch.backends import hip
from ztorch.backends.drivers.rocm import PROPERTIES_BYTES, RocmDevice
from ztorch.backends.gpu import DISABLE_TIMING

# Parameters: p is a pointer or handle, P a pointer to a result, Z to a size_t and I to an int;
# z is a size_t, i an int or an enum, u an unsigned int, l an unsigned long long, s a string.
PARAMETERS = {
    "hipInit": "u", "hipRuntimeGetVersion": "I", "hipGetDeviceCount": "I", "hipSetDevice": "i", "hipDeviceGetName": "pii",
    "hipDeviceTotalMem": "Zi", "hipDeviceGetAttribute": "Iii", "hipGetDevicePropertiesR0600": "pi", "hipGetDeviceProperties": "pi",
    "hipGetLastError": "", "hipMalloc": "Pz", "hipFree": "p", "hipHostRegister": "pzu", "hipHostUnregister": "p",
    "hipMemGetInfo": "ZZ", "hipMemcpyAsync": "ppzip", "hipStreamCreateWithFlags": "Pu", "hipStreamDestroy": "p",
    "hipStreamSynchronize": "p", "hipStreamWaitEvent": "ppu", "hipEventCreateWithFlags": "Pu", "hipEventRecord": "pp",
    "hipEventSynchronize": "p", "hipEventDestroy": "p", "hipModuleLoadData": "Pp", "hipModuleUnload": "p",
    "hipModuleGetFunction": "Pps", "hipGraphCreate": "Pu", "hipGraphAddKernelNode": "Pppzp", "hipGraphAddEmptyNode": "Pppz",
    "hipGraphAddMemcpyNode1D": "Pppzppzi", "hipGraphInstantiateWithFlags": "Ppl", "hipGraphDestroy": "p",
    "hipGraphLaunch": "pp", "hipGraphExecDestroy": "p", "hiprtcCreateProgram": "pssipp", "hiprtcCompileProgram": "pip",
    "hiprtcGetProgramLogSize": "pp", "hiprtcGetProgramLog": "pp", "hiprtcGetCodeSize": "pp", "hiprtcGetCode": "pp",
    "hiprtcDestroyProgram": "p"}
KINDS = {ctypes.c_void_p: "p", ctypes.c_size_t: "z", ctypes.c_int: "i", ctypes.c_uint: "u", ctypes.c_char_p: "s"}
# The letter of unsigned long long is its own: where size_t is as long, ctypes has one type for both.
RESULTS = {ctypes.c_void_p: "P", ctypes.c_size_t: "Z", ctypes.c_int: "I"}

NUMBERS = {
    "hipDeviceAttributeIntegrated": (16, hip.INTEGRATED), "hipDeviceAttributeMaxThreadsPerBlock": (56, hip.MAX_THREADS),
    "hipDeviceAttributeMultiprocessorCount": (63, hip.COMPUTE_UNITS),
    "hipDeviceAttributeMaxSharedMemoryPerBlock": (74, hip.SHARED_BYTES), "hipDeviceAttributeWarpSize": (87, hip.WAVE_SIZE),
    "hipErrorOutOfMemory": (2, hip.OUT_OF_MEMORY), "hipStreamNonBlocking": (1, hip.NON_BLOCKING),
    "hipEventDisableTiming": (2, DISABLE_TIMING), "hipMemcpyHostToDevice": (1, hip.COPY_KINDS["HtoD"]),
    "hipMemcpyDeviceToHost": (2, hip.COPY_KINDS["DtoH"]), "hipMemcpyDeviceToDevice": (3, hip.COPY_KINDS["DtoD"])}
# hipErrorAssert and so on: names that hipGetErrorName gives for errors after which a process has lost its device.
FATAL = {"hipErrorIllegalAddress", "hipErrorLaunchFailure", "hipErrorLaunchTimeOut", "hipErrorAssert",
         "hipErrorECCNotCorrectable", "hipErrorContextIsDestroyed"}


@together()
@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    def letter(kind: Any) -> str:
        return RESULTS[kind.kind] if isinstance(kind, hip.Out) else KINDS[kind]

    given = "".join(map(letter, hip.SIGNATURES[name]))
    same = ctypes.c_ulonglong is ctypes.c_size_t
    assert given == (PARAMETERS[name].replace("l", "z") if same else PARAMETERS[name])


def test_no_call_is_left_out() -> None:
    assert set(hip.SIGNATURES) == set(PARAMETERS)
    made = {RocmDevice.other_names[n] for n in RocmDevice.other_names}
    assert made <= set(PARAMETERS)


@together()
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    header, ours = NUMBERS[name]
    assert ours == header


def test_the_node_of_a_kernel() -> None:
    places = {"blockDim": 0, "extra": 16, "func": 24, "gridDim": 32, "kernelParams": 48, "sharedMemBytes": 56}
    assert {name: getattr(hip.KernelNode, name).offset for name, _ in hip.KernelNode._fields_} == places
    assert ctypes.sizeof(hip.KernelNode) == 64 and ctypes.sizeof(hip.Dim3) == 12


def test_properties_fit() -> None:
    assert max(792, 1472) <= PROPERTIES_BYTES  # sizeof(hipDeviceProp_t) of ROCm 5, and of 6 and 7


def test_fatal_errors() -> None:
    assert RocmDevice.fatal_codes == FATAL
