"""The queue of a Vulkan device: submitted work, and the fences that say when it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ztorch.backends.vulkan_devices import vk
from ztorch.backends.vulkan_memory import Held, VulkanCalls
from ztorch.errors import DeviceError

FOREVER = (1 << 64) - 1  # nanoseconds


def submission(*commands: Any) -> Any:
    """The VkSubmitInfo array of command buffers that are submitted together."""
    return [vk().VkSubmitInfo(commandBufferCount=len(commands), pCommandBuffers=list(commands))]


@dataclass(eq=False)
class Ticket:
    """A submission that something waits for, with a fence of its own until then."""

    commands: Any  # the command buffer, which can be in flight only once
    fence: Any


@dataclass
class Commands:
    """A recorded command buffer, ready to submit."""

    commands: Any  # the command buffer
    pool: Any  # the descriptor pool of its launches
    submit: Any  # the VkSubmitInfo array
    exchange: HostExchange | None = None  # made when its inputs and outputs first come along


@dataclass
class HostExchange:
    """How inputs reach the launches of a recording, and outputs come back."""

    inputs: Held  # memory that the host sees
    outputs: Held
    submit: Any  # the VkSubmitInfo array of the launches, and of copies before and after them
    copies: list[Any] = field(default_factory=list)  # the command buffers of these
    stages: list[Held] = field(default_factory=list)  # separate memory


class VulkanQueue:
    """Submissions in their order. `send` waits for all before it, `start` for none. Only `wait` may
    be called while another thread is in here."""

    def __init__(self, calls: VulkanCalls, family: int | None):
        self._calls = calls
        self._queue = calls.on("vkGetDeviceQueue", family, 0)
        self._made: list[Any] = []  # all fences
        self._free: list[Any] = []  # those that are not in use
        self._fence = self._new_fence()  # of the work that was sent
        self._sent = False  # whether that may be in flight
        self._tickets: list[Ticket] = []

    def _new_fence(self) -> Any:
        self._made.append(self._calls.make("Fence", vk().VkFenceCreateInfo()))
        return self._made[-1]

    def send(self, submit: Any) -> None:
        """Submits a VkSubmitInfo once all before it is done."""
        self.synchronise()
        self._submit(submit, self._fence)
        self._sent = True

    def start(self, commands: Any, submit: Any) -> Ticket:
        """Submits a VkSubmitInfo behind work under way. Of `commands`, which are among it, only
        one submission can be."""
        if self._sent or any(t.commands is commands for t in self._tickets):
            self.synchronise()
        fence = self._free.pop() if self._free else self._new_fence()
        self._submit(submit, fence)
        self._tickets.append(Ticket(commands, fence))
        return self._tickets[-1]

    def _submit(self, submit: Any, fence: Any) -> None:
        self._calls.attempt("vkQueueSubmit", vk().vkQueueSubmit, self._queue, 1, submit, fence)

    def wait(self, ticket: Ticket) -> None:
        """Waits for a submission."""
        self._calls.on("vkWaitForFences", 1, [ticket.fence], 1, FOREVER)

    def take_back(self, ticket: Ticket) -> None:
        """The ticket was waited for."""
        self._tickets.remove(ticket)
        self._calls.on("vkResetFences", 1, [ticket.fence])
        self._free.append(ticket.fence)

    def synchronise(self) -> None:
        """Waits for all that was submitted."""
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
        """Note that nothing is in flight."""
        for fence in self._made:
            self._calls.destroy("Fence", fence)
