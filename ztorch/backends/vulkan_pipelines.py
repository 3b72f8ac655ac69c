"""Compute pipelines of a Vulkan device, created from the SPIR-V of kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ztorch.backends import spirv
from ztorch.backends.handles import KernelEntry
from ztorch.backends.vulkan_devices import GROUP_SHUFFLE, NAMES, Physical, vk
from ztorch.backends.vulkan_memory import VulkanCalls
from ztorch.errors import Unsupported


@dataclass
class LoadedKernels:
    """The kernels of a loaded module. Each list has one item per kernel."""

    pipelines: list[Any] = field(default_factory=list)  # compute pipelines
    layouts: list[tuple[Any, Any]] = field(default_factory=list)  # descriptor set's, pipeline's
    bindings: list[int] = field(default_factory=list)  # number of buffers


class Pipelines:
    """Creates the pipelines of a device, and caches the layouts that they share."""

    def __init__(self, calls: VulkanCalls, physical: Physical):
        self._calls, self._physical = calls, physical
        self._by_bindings: dict[int, tuple[Any, Any]] = {}  # layouts by number of buffers
        self._cache = calls.make("PipelineCache", vk().VkPipelineCacheCreateInfo())

    def load(self, code: bytes, entries: tuple[KernelEntry, ...]) -> LoadedKernels:
        """The pipelines of a module; an error if the device cannot run one of its kernels."""
        api, kernels = vk(), LoadedKernels()
        modules, stages, infos = [], [], []  # keep the structures alive that others point to
        try:
            for e in entries:
                part = code[e.at:e.at + e.size]
                required = self._checked(e, part)
                info = api.VkShaderModuleCreateInfo(codeSize=len(part), pCode=part)
                modules.append(self._calls.make("ShaderModule", info))
                stage, size = self._stage_of(e, modules[-1], required)
                stages.append((stage, size))
                kernels.bindings.append(required.bindings)
                kernels.layouts.append(self._layout(required.bindings))
                infos.append(api.VkComputePipelineCreateInfo(stage=stage,
                                                             layout=kernels.layouts[-1][1]))
            pipelines = self._calls.on("vkCreateComputePipelines", self._cache, len(infos), infos,
                                       None)
            kernels.pipelines = [pipelines[k] for k in range(len(infos))]
        finally:
            for module in modules:
                self._calls.destroy("ShaderModule", module)
        return kernels

    def _checked(self, entry: KernelEntry, part: bytes) -> spirv.Requirements:
        """The requirements of a kernel; an error if this device does not meet all of them."""
        device = self._calls.name
        required = spirv.kernel_requirements(device, entry, part)
        if missing := required.capabilities - self._physical.capabilities:
            names = ", ".join(NAMES.get(c, f"capability {c}") for c in sorted(missing))
            raise Unsupported(f"{device} ({self._physical.name}) has no {names}, which kernel "
                              f"{entry.name} needs; compile with other dtypes, or for another "
                              "device")
        return required

    def _stage_of(self, entry: KernelEntry, module: Any,
                  required: spirv.Requirements) -> tuple[Any, Any]:
        """The stage of a pipeline, and the structure that it points to.

        Kernels with shuffles get full subgroups of the size that they were compiled for.
        """
        api, size, flags = vk(), None, 0
        if GROUP_SHUFFLE in required.capabilities:
            size = api.VkPipelineShaderStageRequiredSubgroupSizeCreateInfo(
                requiredSubgroupSize=self._physical.subgroup)
            if entry.workgroup[0] % self._physical.subgroup == 0:
                flags = api.VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT
        return api.VkPipelineShaderStageCreateInfo(
            pNext=size, flags=flags, stage=api.VK_SHADER_STAGE_COMPUTE_BIT, module=module,
            pName=entry.name), size

    def _layout(self, bindings: int) -> tuple[Any, Any]:
        """The layouts of descriptor set and pipeline for a number of buffers; cached."""
        if bindings not in self._by_bindings:
            api = vk()
            slots = [api.VkDescriptorSetLayoutBinding(
                binding=k, descriptorType=api.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, descriptorCount=1,
                stageFlags=api.VK_SHADER_STAGE_COMPUTE_BIT) for k in range(bindings)]
            sets = self._calls.make("DescriptorSetLayout", api.VkDescriptorSetLayoutCreateInfo(
                bindingCount=bindings, pBindings=slots))
            set_layouts = [sets]
            info = api.VkPipelineLayoutCreateInfo(setLayoutCount=1, pSetLayouts=set_layouts)
            self._by_bindings[bindings] = sets, self._calls.make("PipelineLayout", info)
        return self._by_bindings[bindings]

    def unload(self, kernels: LoadedKernels) -> None:
        """Destroys the pipelines of a module."""
        for pipeline in kernels.pipelines:
            self._calls.destroy("Pipeline", pipeline)

    def close(self) -> None:
        """Destroys the objects that pipelines share."""
        for sets, layout in self._by_bindings.values():
            self._calls.destroy("PipelineLayout", layout)
            self._calls.destroy("DescriptorSetLayout", sets)
        self._calls.destroy("PipelineCache", self._cache)
