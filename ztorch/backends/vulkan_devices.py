"""The Vulkan devices of this machine, with their features and limits.

Structures that are passed to the driver stay in variables until it has read them, because the
`vulkan` package does not keep the structures alive that they point to.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from ztorch.abi import BUFFER_ALIGN, PAGE
from ztorch.backends.handles import DeviceInfo
from ztorch.errors import DeviceError
from ztorch.host.processor import usable_cores

KINDS = ("virtual", "integrated", "gpu", "virtual", "cpu")  # by VkPhysicalDeviceType
COMPUTE_STAGE = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT
SHUFFLE = 0x10  # VK_SUBGROUP_FEATURE_SHUFFLE_BIT
# SPIR-V capabilities: Shader, GroupNonUniform, GroupNonUniformShuffle and
# SignedZeroInfNanPreserve.
SHADER, GROUPS, GROUP_SHUFFLE, FLOAT_CONTROLS = 1, 61, 65, 4466
MAX_BUFFER_BYTES = (1 << 31) - 1  # offsets in kernels have 32 bits


class Feature(NamedTuple):
    """An optional feature that some dtypes need."""

    capability: int  # number of the SPIR-V capability
    structure: str  # the structure that reports it; empty: VkPhysicalDeviceFeatures
    field: str  # the field of that structure
    version: tuple[int, int]  # the Vulkan version that includes the field
    extension: str  # the extension that adds it to earlier versions, if any
    dtypes: str  # the dtypes that need it, for error messages


FEATURES = (
    Feature(10, "", "shaderFloat64", (1, 0), "", "float64"),
    Feature(11, "", "shaderInt64", (1, 0), "", "int64 and uint64"),
    Feature(22, "", "shaderInt16", (1, 0), "", "int16, uint16, float16 and bfloat16"),
    Feature(39, "VkPhysicalDeviceShaderFloat16Int8Features", "shaderInt8", (1, 2),
            "VK_KHR_shader_float16_int8", "int8, uint8 and bool"),
    Feature(4433, "VkPhysicalDevice16BitStorageFeatures", "storageBuffer16BitAccess", (1, 1), "",
            "buffers of int16, uint16, float16 and bfloat16"),
    Feature(4448, "VkPhysicalDevice8BitStorageFeatures", "storageBuffer8BitAccess", (1, 2),
            "VK_KHR_8bit_storage", "buffers of int8, uint8 and bool"),
)
SUBGROUPS = "VK_EXT_subgroup_size_control"
CONTROLS = "VK_KHR_shader_float_controls"
HOST_MEMORY = "VK_EXT_external_memory_host"
NAMES = {f.capability: f"{f.dtypes} ({f.field})" for f in FEATURES} | {
    FLOAT_CONTROLS: "NaN and infinity (shaderSignedZeroInfNanPreserveFloat32)",
    GROUP_SHUFFLE: "shuffles in subgroups of one known size (subgroupSizeControl)"}


@functools.cache
def vk() -> Any:
    """The `vulkan` package; ImportError if it is missing, OSError if the loader is missing."""
    import vulkan

    return vulkan


@functools.cache
def _instance() -> Any:
    """The Vulkan instance of this process, which is never destroyed."""
    api = vk()
    version = min(api.vkEnumerateInstanceVersion(), api.VK_MAKE_VERSION(1, 3, 0))
    application = api.VkApplicationInfo(pApplicationName="ztorch", apiVersion=version)
    info = api.VkInstanceCreateInfo(pApplicationInfo=application)
    return api.vkCreateInstance(info, None)


@functools.cache
def physical_devices() -> tuple[Physical, ...]:
    """All devices with Vulkan 1.1 or later and a compute queue, in the loader's order."""
    api = vk()
    handles = api.vkEnumeratePhysicalDevices(_instance())
    devices = [Physical(handles[k]) for k in range(len(handles))]
    return tuple(p for p in devices if p.version >= (1, 1) and p.family is not None)


class Physical:
    """A physical device: its features and limits, before it is opened."""

    def __init__(self, handle: Any):
        api = vk()
        self.handle = handle
        self.properties = api.vkGetPhysicalDeviceProperties(handle)
        number = self.properties.apiVersion
        self.version = number >> 22 & 0x7F, number >> 12 & 0x3FF
        self.name = str(self.properties.deviceName)
        families = api.vkGetPhysicalDeviceQueueFamilyProperties(handle)
        flags = [families[k].queueFlags for k in range(len(families))]
        compute = [k for k, f in enumerate(flags) if f & api.VK_QUEUE_COMPUTE_BIT]
        compute_only = [k for k in compute if not flags[k] & api.VK_QUEUE_GRAPHICS_BIT]
        self.family: int | None = next(iter([*compute_only, *compute]), None)
        if self.version >= (1, 1):
            self._query()

    def _query(self) -> None:
        """Reads the optional features and limits from the driver."""
        api = vk()
        extensions = api.vkEnumerateDeviceExtensionProperties(self.handle, None)
        self.extensions = {str(e.extensionName) for e in extensions}
        chain, links = None, {}
        reported = [f for f in FEATURES if self._has(f.extension, f.version)]
        for name in dict.fromkeys(f.structure for f in reported if f.structure):
            chain = links[name] = getattr(api, name)(pNext=chain)
        if self._has(SUBGROUPS, (1, 3)):
            chain = sizes = api.VkPhysicalDeviceSubgroupSizeControlFeatures(pNext=chain)
        features = api.VkPhysicalDeviceFeatures2(pNext=chain)
        api.vkGetPhysicalDeviceFeatures2(self.handle, features)
        links[""] = features.features
        self.features = tuple(f for f in reported if getattr(links[f.structure], f.field))
        subgroup = self._limits()
        self.controls_subgroups = bool(
            self._has(SUBGROUPS, (1, 3)) and sizes.subgroupSizeControl
            and sizes.computeFullSubgroups and subgroup)
        self.subgroup = subgroup if self.controls_subgroups else 0
        self.capabilities = {SHADER} | {f.capability for f in self.features}
        if self.keeps_nan:
            self.capabilities.add(FLOAT_CONTROLS)
        if self.subgroup:
            self.capabilities |= {GROUPS, GROUP_SHUFFLE}

    def _limits(self) -> int:
        """Reads the device's properties; returns the subgroup size.

        The size is 0 if subgroups lack shuffles, or if a kernel cannot require a size.
        """
        api = vk()
        chain = max_allocation = api.VkPhysicalDeviceMaintenance3Properties()
        chain = group = api.VkPhysicalDeviceSubgroupProperties(pNext=chain)
        if self._has(CONTROLS, (1, 2)):
            chain = floats = api.VkPhysicalDeviceFloatControlsProperties(pNext=chain)
        if self._has(SUBGROUPS, (1, 3)):
            chain = sizes = api.VkPhysicalDeviceSubgroupSizeControlProperties(pNext=chain)
        if self.version >= (1, 2):
            chain = driver = api.VkPhysicalDeviceDriverProperties(pNext=chain)
        properties = api.VkPhysicalDeviceProperties2(pNext=chain)
        api.vkGetPhysicalDeviceProperties2(self.handle, properties)
        self.driver = f"{self.properties.driverVersion:#x}"
        if self.version >= (1, 2):
            texts = (api.ffi.string(text).decode(errors="replace")
                     for text in (driver.driverName, driver.driverInfo))
            self.driver = " ".join(text for text in texts if text)
        self.max_allocation = int(max_allocation.maxMemoryAllocationSize)
        self.keeps_nan = bool(self._has(CONTROLS, (1, 2))
                              and floats.shaderSignedZeroInfNanPreserveFloat32)
        fixed = self._has(SUBGROUPS, (1, 3)) and sizes.requiredSubgroupSizeStages & COMPUTE_STAGE
        shuffles = group.supportedStages & COMPUTE_STAGE and group.supportedOperations & SHUFFLE
        return int(group.subgroupSize) if fixed and shuffles else 0

    def _has(self, extension: str, version: tuple[int, int]) -> bool:
        return self.version >= version or extension in self.extensions

    def describe(self, ordinal: int) -> DeviceInfo:
        """The device as a row of ztorch's list of devices."""
        limits, heaps = self.properties.limits, self.heaps()
        grid = {
            "threads": min(limits.maxComputeWorkGroupInvocations,
                           limits.maxComputeWorkGroupSize[0]),
            "shared_bytes": limits.maxComputeSharedMemorySize,
            "subgroup": self.subgroup,
            "max_groups": min(limits.maxComputeWorkGroupCount[k] for k in range(3)),
            "max_buffers": min(limits.maxPerStageDescriptorStorageBuffers,
                               limits.maxDescriptorSetStorageBuffers, limits.maxPerStageResources),
            "max_buffer_bytes": min(limits.maxStorageBufferRange, MAX_BUFFER_BYTES),
            "buffer_align": max(BUFFER_ALIGN, limits.minStorageBufferOffsetAlignment),
        }
        kind = KINDS[min(self.properties.deviceType, len(KINDS) - 1)]
        if kind == "cpu":  # for other kinds, Vulkan does not report the number of units
            grid["compute_units"] = usable_cores()
            grid["skips_branches"] = False  # Mesa's llvmpipe runs all, without effect
        total = max((h.size for h in heaps if h.flags & vk().VK_MEMORY_HEAP_DEVICE_LOCAL_BIT),
                    default=0)
        return DeviceInfo(ordinal, self.name, kind, int(total), "",
                          tuple((k, int(v)) for k, v in grid.items()),
                          f"Vulkan {self.version[0]}.{self.version[1]}, {self.driver}")

    def heaps(self) -> list[Any]:
        memory = vk().vkGetPhysicalDeviceMemoryProperties(self.handle)
        return [memory.memoryHeaps[k] for k in range(memory.memoryHeapCount)]

    def memory_types(self) -> list[tuple[int, int]]:
        """The flags of each memory type, and the bytes of its heap."""
        memory = vk().vkGetPhysicalDeviceMemoryProperties(self.handle)
        types = [memory.memoryTypes[k] for k in range(memory.memoryTypeCount)]
        return [(t.propertyFlags, int(memory.memoryHeaps[t.heapIndex].size)) for t in types]

    @property
    def shares_memory(self) -> bool:
        """Whether the device uses the host's memory, and buffers may be any pages of it."""
        api = vk()
        kinds = api.VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU, api.VK_PHYSICAL_DEVICE_TYPE_CPU
        if HOST_MEMORY not in self.extensions or self.properties.deviceType not in kinds:
            return False
        host = api.VkPhysicalDeviceExternalMemoryHostPropertiesEXT()
        api.vkGetPhysicalDeviceProperties2(self.handle, api.VkPhysicalDeviceProperties2(pNext=host))
        return bool(host.minImportedHostPointerAlignment <= PAGE)

    def open(self) -> Any:
        """Creates a logical device with one queue and all available features."""
        api = vk()
        chain, links = None, {"": api.VkPhysicalDeviceFeatures()}
        for name in dict.fromkeys(f.structure for f in self.features if f.structure):
            chain = links[name] = getattr(api, name)(pNext=chain)
        if self.controls_subgroups:
            chain = api.VkPhysicalDeviceSubgroupSizeControlFeatures(
                pNext=chain, subgroupSizeControl=1, computeFullSubgroups=1)
        for f in self.features:
            setattr(links[f.structure], f.field, 1)
        useful = {f.extension for f in FEATURES} | {SUBGROUPS, CONTROLS, HOST_MEMORY}
        queue = api.VkDeviceQueueCreateInfo(queueFamilyIndex=self.family, queueCount=1,
                                            pQueuePriorities=[1.0])
        features = api.VkPhysicalDeviceFeatures2(pNext=chain, features=links[""])
        names = sorted(useful & self.extensions)
        info = api.VkDeviceCreateInfo(pNext=features, queueCreateInfoCount=1,
                                      pQueueCreateInfos=[queue], enabledExtensionCount=len(names),
                                      ppEnabledExtensionNames=names)
        return api.vkCreateDevice(self.handle, info, None)


def refusal() -> str:
    """The reason why no device is usable; empty if one is."""
    try:
        api = vk()
    except ModuleNotFoundError:
        return "the package vulkan is not installed; pip install 'ztorch[vulkan]'"
    except OSError:
        return "there is no Vulkan loader (libvulkan.so.1); install a Vulkan driver"
    try:
        return "" if physical_devices() else "no device has Vulkan 1.1 and a compute queue"
    except api.VkErrorIncompatibleDriver:  # also if a driver's library is damaged
        return "the Vulkan loader finds no driver"
    except api.ProcedureNotFoundError:
        return "the Vulkan loader is older than Vulkan 1.1"


def physical_device(ordinal: int) -> Physical:
    """The physical device with this number."""
    try:
        return physical_devices()[ordinal]
    except IndexError:
        raise DeviceError(f"there is no device vulkan:{ordinal}") from None
