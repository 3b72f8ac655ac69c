"""The Vulkan backend, through the `vulkan` package.

`vulkan_devices` lists the devices and their features, `vulkan_memory` allocates buffers,
`vulkan_pipelines` creates pipelines, `vulkan_queue` submits commands and waits for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ztorch.backends import vulkan_devices
from ztorch.backends.backend import Backend
from ztorch.backends.device import Device
from ztorch.backends.handles import DeviceInfo, DeviceModule, KernelEntry, Launch, wrong_count
from ztorch.backends.vulkan_devices import Physical, vk
from ztorch.backends.vulkan_memory import STAGE, DeviceAllocation, Memories, VulkanCalls
from ztorch.backends.vulkan_pipelines import LoadedKernels, Pipelines
from ztorch.backends.vulkan_queue import Commands, HostExchange, Ticket, VulkanQueue, submission
from ztorch.errors import DeviceError


class Vulkan(Backend):
    """All devices with a compute queue, in the loader's order."""

    name = "vulkan"

    def refusal(self) -> str:
        return vulkan_devices.refusal()

    def devices(self) -> list[DeviceInfo]:
        if self.refusal():
            return []
        return [p.describe(k) for k, p in enumerate(vulkan_devices.physical_devices())]

    def open(self, ordinal: int = 0) -> Device:
        physical = vulkan_devices.physical_device(ordinal)
        return VulkanDevice(physical.describe(ordinal), physical)


class VulkanDevice(Device):
    """A logical device with one queue. Submitted commands may overlap: the host writes inputs
    and reads outputs of one run during another one."""

    overlaps = True

    def __init__(self, info: DeviceInfo, physical: Physical, direct: bool = True):
        super().__init__("vulkan", info)
        self._physical = physical
        api = vk()
        self._calls = VulkanCalls(self.id, physical)
        self._memories = Memories(self._calls, physical, direct)
        pool = api.VkCommandPoolCreateInfo(
            flags=api.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
            queueFamilyIndex=physical.family)
        self._pool = self._calls.make("CommandPool", pool)
        self._queue = VulkanQueue(self._calls, physical.family)
        self._pipelines = Pipelines(self._calls, physical)
        self._copies = self._commands()

    # -- submission --------------------------------------------------------------------------------

    def _synchronize(self) -> None:
        self._queue.synchronize()

    def _submit(self, recording: Any, inputs: Any, data_in: np.ndarray, outputs: Any,
                data_out: np.ndarray) -> Any:
        if recording.exchange is None:
            recording.exchange = self._exchange(recording.commands, inputs, data_in.nbytes,
                                                outputs, data_out.nbytes)
        exchange = recording.exchange
        exchange.inputs.host_view[:data_in.nbytes] = data_in
        ticket = self._queue.start(recording.commands, exchange.submit)
        return ticket, exchange.outputs, data_out

    def _finish(self, ticket: tuple[Ticket, DeviceAllocation, np.ndarray]) -> None:
        submitted, outputs, data_out = ticket
        self._queue.wait(submitted)
        with self._guard:
            self._queue.take_back(submitted)
            assert outputs.host_view is not None
            data_out[...] = outputs.host_view[:data_out.nbytes]

    def _exchange(self, launches: Any, inputs: DeviceAllocation, bytes_in: int,
                  outputs: DeviceAllocation, bytes_out: int) -> HostExchange:
        """The buffers of the launches themselves if the host maps both; else staging buffers."""
        if inputs.host_view is not None and outputs.host_view is not None:
            return HostExchange(inputs, outputs, submission(launches))
        bytes_in, bytes_out = max(bytes_in, 1), max(bytes_out, 1)
        first = self._memories.mapped(bytes_in)
        try:
            last = self._memories.mapped(bytes_out)
        except DeviceError:
            self._memories.free(first)
            raise
        into, back = self._commands(), self._commands()
        self._record_copy(into, first, 0, inputs, 0, bytes_in)
        self._record_copy(back, outputs, 0, last, 0, bytes_out)
        return HostExchange(first, last, submission(into, launches, back), [into, back],
                            [first, last])

    def _close(self) -> None:
        try:
            self._synchronize()
        finally:
            self._memories.close()
            self._pipelines.close()
            self._queue.close()
            self._calls.destroy("CommandPool", self._pool)
            vk().vkDestroyDevice(self._calls.device, None)

    # -- memory ------------------------------------------------------------------------------------

    def _alloc(self, nbytes: int) -> Any:
        return self._memories.alloc(nbytes)

    def _adopt(self, block: np.ndarray) -> Any:
        return self._memories.adopted(block)

    def _host_view(self, handle: Any) -> np.ndarray | None:
        if not handle.is_host:
            return None
        self._synchronize()
        return handle.host_view

    def _free(self, handle: Any) -> None:
        self._synchronize()
        self._memories.free(handle)

    def _write(self, handle: Any, at: int, data: np.ndarray) -> None:
        if handle.host_view is not None:
            self._synchronize()
            handle.host_view[at:at + data.size] = data
            return
        stage, window = self._memories.stage()
        for start in range(0, data.size, STAGE):
            part = data[start:start + STAGE]
            self._synchronize()
            window[:part.size] = part
            self._copy(stage, 0, handle, at + start, part.size)

    def _read(self, handle: Any, at: int, out: np.ndarray) -> None:
        if handle.host_view is not None:
            self._synchronize()
            out[...] = handle.host_view[at:at + out.size]
            return
        stage, window = self._memories.stage()
        for start in range(0, out.size, STAGE):
            part = out[start:start + STAGE]
            self._copy(handle, at + start, stage, 0, part.size)
            self._synchronize()
            part[...] = window[:part.size]

    def _copy(self, source: Any, source_at: int, target: Any, target_at: int,
              nbytes: int) -> None:
        self._synchronize()  # the one command buffer for copies may still be in use
        self._record_copy(self._copies, source, source_at, target, target_at, nbytes)
        self._queue.send(submission(self._copies))

    def _record_copy(self, commands: Any, source: DeviceAllocation, source_at: int,
                     target: DeviceAllocation, target_at: int, nbytes: int) -> None:
        api = vk()
        region = api.VkBufferCopy(srcOffset=source_at, dstOffset=target_at, size=nbytes)
        self._recorded(commands, lambda into: api.vkCmdCopyBuffer(
            into, source.buffer, target.buffer, 1, [region]))

    def _memory(self) -> tuple[int, int]:
        total = self.info.memory_bytes
        return total - self.allocated, total

    # -- code --------------------------------------------------------------------------------------

    def _load(self, code: bytes, entries: tuple[KernelEntry, ...]) -> LoadedKernels:
        return self._pipelines.load(code, entries)

    def _unload(self, handles: Any) -> None:
        self._synchronize()
        self._pipelines.unload(handles)

    # -- recordings --------------------------------------------------------------------------------

    def _commands(self) -> Any:
        api = vk()
        info = api.VkCommandBufferAllocateInfo(
            commandPool=self._pool, level=api.VK_COMMAND_BUFFER_LEVEL_PRIMARY, commandBufferCount=1)
        return self._calls.on("vkAllocateCommandBuffers", info)[0]

    def _recorded(self, commands: Any, body: Callable[[Any], None]) -> None:
        """Records the commands that `body` issues, with a barrier before and after them."""
        api = vk()
        self._calls.attempt("vkBeginCommandBuffer", api.vkBeginCommandBuffer, commands,
                            api.VkCommandBufferBeginInfo())
        self._barrier(commands)
        body(commands)
        self._barrier(commands, api.VK_PIPELINE_STAGE_HOST_BIT, api.VK_ACCESS_HOST_READ_BIT)
        self._calls.attempt("vkEndCommandBuffer", api.vkEndCommandBuffer, commands)

    def _barrier(self, commands: Any, stage: int = 0, access: int = 0) -> None:
        """Makes earlier writes visible to later work, and to `access` in the given `stage`."""
        api = vk()
        stages = api.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | api.VK_PIPELINE_STAGE_TRANSFER_BIT
        writes = api.VK_ACCESS_SHADER_WRITE_BIT | api.VK_ACCESS_TRANSFER_WRITE_BIT
        reads = api.VK_ACCESS_SHADER_READ_BIT | api.VK_ACCESS_TRANSFER_READ_BIT
        barrier = api.VkMemoryBarrier(srcAccessMask=writes, dstAccessMask=writes | reads | access)
        api.vkCmdPipelineBarrier(commands, stages, stages | stage, 0, 1, [barrier], 0, None, 0,
                                 None)

    def _record(self, module: DeviceModule, launches: tuple[Launch, ...]) -> Any:
        api, kernels = vk(), module.handle
        count = sum(len(x.bindings) for x in launches)
        sizes = api.VkDescriptorPoolSize(type=api.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                         descriptorCount=max(count, 1))
        pool = self._calls.make("DescriptorPool", api.VkDescriptorPoolCreateInfo(
            maxSets=max(len(launches), 1), poolSizeCount=1, pPoolSizes=[sizes]))
        try:
            sets = self._sets(pool, module, launches)
            commands = self._commands()
        except DeviceError:
            self._calls.destroy("DescriptorPool", pool)
            raise

        def body(into: Any) -> None:
            for number, (launch, bound) in enumerate(zip(launches, sets, strict=True)):
                if launch.barrier and number:
                    self._barrier(into)
                api.vkCmdBindPipeline(into, api.VK_PIPELINE_BIND_POINT_COMPUTE,
                                      kernels.pipelines[launch.entry])
                api.vkCmdBindDescriptorSets(into, api.VK_PIPELINE_BIND_POINT_COMPUTE,
                                            kernels.layouts[launch.entry][1], 0, 1, [bound], 0,
                                            None)
                api.vkCmdDispatch(into, *launch.grid)

        self._recorded(commands, body)
        return Commands(commands, pool, submission(commands))

    def _sets(self, pool: Any, module: DeviceModule, launches: tuple[Launch, ...]) -> list[Any]:
        """A descriptor set for each launch, with the buffer ranges that it binds."""
        api, kernels, sets = vk(), module.handle, []
        for launch in launches:
            self._within_limits(launch)
            count = kernels.bindings[launch.entry]
            if count != len(launch.bindings):
                raise DeviceError(wrong_count(self.id, module.entries[launch.entry].name, count,
                                              len(launch.bindings)))
            layouts = [kernels.layouts[launch.entry][0]]
            info = api.VkDescriptorSetAllocateInfo(descriptorPool=pool, descriptorSetCount=1,
                                                   pSetLayouts=layouts)
            descriptors = self._calls.on("vkAllocateDescriptorSets", info)[0]
            sets.append(descriptors)
            if launch.bindings:  # one write sets consecutive bindings
                parts = [api.VkDescriptorBufferInfo(buffer=b.buffer.handle.buffer, offset=b.at,
                                                    range=b.nbytes) for b in launch.bindings]
                write = api.VkWriteDescriptorSet(
                    dstSet=descriptors, dstBinding=0, descriptorCount=len(parts), pBufferInfo=parts,
                    descriptorType=api.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER)
                api.vkUpdateDescriptorSets(self._calls.device, 1, [write], 0, None)
        return sets

    def _within_limits(self, launch: Launch) -> None:
        """Raises an error if a launch, compiled for another device, exceeds this one's limits."""
        limits = self._physical.properties.limits
        for b in launch.bindings:
            if b.at % limits.minStorageBufferOffsetAlignment:
                raise DeviceError(f"{self.id}: a kernel's buffer starts at byte {b.at}; it must "
                                  "start at a multiple of "
                                  f"{limits.minStorageBufferOffsetAlignment}")
            if b.nbytes > limits.maxStorageBufferRange:
                raise DeviceError(f"{self.id}: a kernel's buffer has {b.nbytes:,} bytes; this "
                                  f"device allows {limits.maxStorageBufferRange:,}")
        if any(n > limits.maxComputeWorkGroupCount[k] for k, n in enumerate(launch.grid)):
            raise DeviceError(f"{self.id}: a grid of {launch.grid} workgroups exceeds its limits")

    def _drop(self, handle: Any) -> None:
        self._synchronize()
        self._calls.destroy("DescriptorPool", handle.pool)
        exchange, commands = handle.exchange, [handle.commands]
        if exchange is not None:
            commands += exchange.copies
            for stage in exchange.stages:
                self._memories.free(stage)
        vk().vkFreeCommandBuffers(self._calls.device, self._pool, len(commands), commands)

    def _run(self, handle: Any) -> None:
        self._queue.send(handle.submit)


BACKEND = Vulkan()
