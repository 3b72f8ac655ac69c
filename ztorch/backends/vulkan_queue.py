"""The queue of a Vulkan device: submitted work, and the fences that signal its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ztorch.backends.vulkan_devices import vk
from ztorch.backends.vulkan_memory import DeviceAllocation, VulkanCalls
from ztorch.errors import DeviceError

FOREVER = (1 << 64) - 1  # nanoseconds


def submission(*commands: Any) -> Any:
    """The VkSubmitInfo array that submits command buffers together."""
    return [vk().VkSubmitInfo(commandBufferCount=len(commands), pCommandBuffers=list(commands))]


@dataclass(eq=False)
class Ticket:
    """A submission with its own fence."""

    commands: Any  # the command buffer, which can be in flight only once
    fence: Any


@dataclass
class Commands:
    """A recorded command buffer, ready to submit."""

    commands: Any  # the command buffer
    pool: Any  # the descriptor pool of its launches
    submit: Any  # the VkSubmitInfo array
    exchange: HostExchange | None = None  # created at the first `Device.submit`


@dataclass
class HostExchange:
    """The memory and commands that copy inputs to the launches of a recording and outputs back."""

    inputs: DeviceAllocation  # mapped memory that the host writes
    outputs: DeviceAllocation  # mapped memory that the host reads
    submit: Any  # the VkSubmitInfo array of the launches, and of copies before and after them
    copies: list[Any] = field(default_factory=list)  # the command buffers of the copies
    stages: list[DeviceAllocation] = field(default_factory=list)  # staging buffers to free


class VulkanQueue:
    """Submits work in order. `send` first waits for earlier work; `start` does not. Only `wait`
    may be called by several threads at once."""

    def __init__(self, calls: VulkanCalls, family: int | None):
        self._calls = calls
        self._queue = calls.on("vkGetDeviceQueue", family, 0)
        self._fences: list[Any] = []  # all fences
        self._free: list[Any] = []  # those that are not in use
        self._fence = self._new_fence()  # the fence of `send`
        self._sent = False  # whether the work of `send` may be in flight
        self._tickets: list[Ticket] = []

    def _new_fence(self) -> Any:
        self._fences.append(self._calls.make("Fence", vk().VkFenceCreateInfo()))
        return self._fences[-1]

    def send(self, submit: Any) -> None:
        """Submits work once all earlier work is done."""
        self.synchronize()
        self._submit(submit, self._fence)
        self._sent = True

    def start(self, commands: Any, submit: Any) -> Ticket:
        """Submits work that may overlap earlier work. `commands` is the command buffer in it that
        can be in flight only once."""
        if self._sent or any(t.commands is commands for t in self._tickets):
            self.synchronize()
        fence = self._free.pop() if self._free else self._new_fence()
        self._submit(submit, fence)
        self._tickets.append(Ticket(commands, fence))
        return self._tickets[-1]

    def _submit(self, submit: Any, fence: Any) -> None:
        self._calls.attempt("vkQueueSubmit", vk().vkQueueSubmit, self._queue, 1, submit, fence)

    def wait(self, ticket: Ticket) -> None:
        """Waits for a submission. Call `take_back` afterwards."""
        self._calls.on("vkWaitForFences", 1, [ticket.fence], 1, FOREVER)

    def take_back(self, ticket: Ticket) -> None:
        """Reuses the fence of a ticket that was waited for."""
        self._tickets.remove(ticket)
        self._calls.on("vkResetFences", 1, [ticket.fence])
        self._free.append(ticket.fence)

    def synchronize(self) -> None:
        """Waits for all submitted work."""
        fences = [t.fence for t in self._tickets] + [self._fence] * self._sent
        if not fences:
            return
        try:
            self._calls.on("vkWaitForFences", len(fences), fences, 1, FOREVER)
            if self._sent:
                self._calls.on("vkResetFences", 1, [self._fence])
        except DeviceError:
            self._tickets.clear()  # a lost device can still be closed
            raise
        finally:
            self._sent = False

    def close(self) -> None:
        """Destroys the fences. No work may be in flight."""
        for fence in self._fences:
            self._calls.destroy("Fence", fence)
