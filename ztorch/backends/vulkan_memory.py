"""Calls of an open Vulkan device, and the allocation of its buffers.

If the host can map the device's memory with caching, as on integrated GPUs and CPUs, it reads and
writes buffers in place. If such a driver can import pages of the host, large buffers are imported
pages, which stay valid when the buffer is freed. On other devices, data goes through a staging
buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ztorch.abi import PAGE, PAGED_BYTES, align_up
from ztorch.backends.vulkan_devices import Physical, vk
from ztorch.errors import DeviceError, OutOfMemory
from ztorch.host.memory import aligned

STAGE = 8 << 20  # bytes of the staging buffer


class VulkanCalls:
    """Calls of a logical device. Their errors name the failed call."""

    def __init__(self, name: str, physical: Physical):
        self.name = name
        self.device = self.attempt("vkCreateDevice", physical.open)

    def attempt(self, call: str, function: Any, *args: Any) -> Any:
        api = vk()
        try:
            return function(*args)
        except (api.VkErrorOutOfDeviceMemory, api.VkErrorOutOfHostMemory,
                api.VkErrorOutOfPoolMemory, api.VkErrorFragmentedPool,
                api.VkErrorTooManyObjects) as error:
            raise OutOfMemory(f"{self.name}: {call}: {type(error).__name__}") from None
        except (api.VkError, api.VkException) as error:
            raise DeviceError(f"{self.name}: {call}: {type(error).__name__}") from None
        except KeyError as error:  # an error code that the package does not know
            raise DeviceError(f"{self.name}: {call}: error {error}") from None

    def on(self, call: str, *args: Any) -> Any:
        """Calls a function whose first argument is the device."""
        return self.attempt(call, getattr(vk(), call), self.device, *args)

    def make(self, kind: str, info: Any) -> Any:
        """Creates an object from its VkCreateInfo structure."""
        return self.on(f"vkCreate{kind}", info, None)

    def destroy(self, kind: str, handle: Any) -> None:
        getattr(vk(), f"vkDestroy{kind}")(self.device, handle, None)


@dataclass
class DeviceAllocation:
    """A buffer with its memory."""

    buffer: Any  # VkBuffer
    memory: Any  # VkDeviceMemory
    host_view: np.ndarray | None  # the memory as an array of the host, if it is mapped
    is_host: bool = False  # whether it is imported memory of the host


class Memories:
    """Allocates and frees buffers."""

    def __init__(self, calls: VulkanCalls, physical: Physical, direct: bool):
        self.calls, self.physical, self.direct = calls, physical, direct
        self._shares = direct and physical.shares_memory
        self._stage: DeviceAllocation | None = None

    def alloc(self, nbytes: int) -> DeviceAllocation:
        """A buffer in device memory, mapped into the host if the memory allows cached access."""
        api = vk()
        if nbytes > self.physical.max_allocation:
            raise OutOfMemory(f"{self.calls.name}: {nbytes:,} bytes were requested, and an "
                              f"allocation may have {self.physical.max_allocation:,}")
        if self._shares and nbytes >= PAGED_BYTES:
            allocation = self.adopted(aligned(align_up(nbytes, PAGE)))
            if allocation is not None:
                return allocation
        local = api.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
        cached = _host_visible() | api.VK_MEMORY_PROPERTY_HOST_CACHED_BIT
        if self.direct and self._has(local | cached):
            return self._alloc(nbytes, [local | cached, local], True)
        return self._alloc(nbytes, [local, 0], False)

    def adopted(self, block: np.ndarray) -> DeviceAllocation | None:
        """A buffer that shares the memory of an array of bytes; None if the driver cannot import
        its pages."""
        if not self._shares or block.nbytes > self.physical.max_allocation:
            return None
        api, calls = vk(), self.calls
        address = block.__array_interface__["data"][0]
        first, end = address // PAGE * PAGE, align_up(address + block.nbytes, PAGE)
        kind = api.VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT
        pages = api.ffi.cast("void*", first)
        ask = api.vkGetDeviceProcAddr(calls.device, "vkGetMemoryHostPointerPropertiesEXT")
        properties = api.VkMemoryHostPointerPropertiesEXT()
        calls.attempt("vkGetMemoryHostPointerPropertiesEXT", ask, calls.device, kind, pages,
                          properties)
        types = properties.memoryTypeBits
        theirs = api.VkExternalMemoryBufferCreateInfo(handleTypes=kind)
        buffer, memory = calls.make("Buffer", self._info(block.nbytes, theirs)), None
        try:
            needed = api.vkGetBufferMemoryRequirements(calls.device, buffer)
            possible, visible = types & needed.memoryTypeBits, _host_visible()
            number = next((k for k, (flags, _) in enumerate(self.physical.memory_types())
                           if possible & 1 << k and flags & visible == visible), None)
            at = address - first
            fits = at % needed.alignment == 0 and at + needed.size <= end - first
            if number is not None and fits:
                pages_of = api.VkImportMemoryHostPointerInfoEXT(handleType=kind, pHostPointer=pages)
                memory = calls.on("vkAllocateMemory", api.VkMemoryAllocateInfo(
                    pNext=pages_of, allocationSize=end - first, memoryTypeIndex=number), None)
                calls.on("vkBindBufferMemory", buffer, memory, at)
                return DeviceAllocation(buffer, memory, block, True)
        except DeviceError:  # the driver refuses some pages, such as those of a file
            if memory is not None:
                api.vkFreeMemory(calls.device, memory, None)
        calls.destroy("Buffer", buffer)
        return None

    def stage(self) -> tuple[DeviceAllocation, np.ndarray]:
        """The staging buffer and its mapping in the host."""
        if self._stage is None:
            self._stage = self.mapped(STAGE)
        assert self._stage.host_view is not None
        return self._stage, self._stage.host_view

    def mapped(self, nbytes: int) -> DeviceAllocation:
        """A buffer that the host maps."""
        choices = [_host_visible() | vk().VK_MEMORY_PROPERTY_HOST_CACHED_BIT, _host_visible()]
        return self._alloc(nbytes, choices, True)

    def free(self, allocation: DeviceAllocation) -> None:
        allocation.host_view = None
        self.calls.destroy("Buffer", allocation.buffer)
        vk().vkFreeMemory(self.calls.device, allocation.memory, None)  # also unmaps it

    def close(self) -> None:
        if self._stage is not None:
            self.free(self._stage)
            self._stage = None

    def _has(self, flags: int) -> bool:
        return any(t & flags == flags for t, _ in self.physical.memory_types())

    def _alloc(self, nbytes: int, choices: list[int], host_visible: bool) -> DeviceAllocation:
        """A buffer in memory with the first flags of `choices` that a memory type has."""
        api, calls = vk(), self.calls
        buffer, memory = calls.make("Buffer", self._info(nbytes, None)), None
        try:
            needed = api.vkGetBufferMemoryRequirements(calls.device, buffer)
            number = self._type(needed, choices)
            request = api.VkMemoryAllocateInfo(allocationSize=needed.size, memoryTypeIndex=number)
            memory = calls.on("vkAllocateMemory", request, None)
            calls.on("vkBindBufferMemory", buffer, memory, 0)
            mapped = calls.on("vkMapMemory", memory, 0, needed.size, 0) if host_visible else None
        except DeviceError:
            calls.destroy("Buffer", buffer)
            if memory is not None:
                api.vkFreeMemory(calls.device, memory, None)
            raise
        view = None if mapped is None else np.frombuffer(mapped, np.uint8)
        return DeviceAllocation(buffer, memory, view)

    def _info(self, nbytes: int, more: Any) -> Any:
        api = vk()
        return api.VkBufferCreateInfo(
            pNext=more, size=align_up(nbytes, 16), sharingMode=api.VK_SHARING_MODE_EXCLUSIVE,
            usage=api.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | api.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
            | api.VK_BUFFER_USAGE_TRANSFER_DST_BIT)

    def _type(self, needed: Any, choices: list[int]) -> int:
        """The number of a memory type that has the first possible flags of `choices`."""
        types = self.physical.memory_types()
        allowed = [k for k in range(len(types)) if needed.memoryTypeBits >> k & 1]
        for flags in choices:
            for k in allowed:
                if types[k][0] & flags == flags:
                    if needed.size > types[k][1]:
                        raise OutOfMemory(f"{self.calls.name}: {needed.size:,} bytes were "
                                          f"requested, and the device has {types[k][1]:,}")
                    return k
        raise DeviceError(f"{self.calls.name}: no memory type can hold a buffer")


def _host_visible() -> int:
    """The flags of memory that the host can map."""
    api = vk()
    flags: int = (api.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT
                  | api.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
    return flags
