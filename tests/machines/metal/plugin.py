"""A plugin of pytest: the whole run has a Mac's GPU, played by tests/machines/metal/fake.py."""

from tests.machines.metal.fake import Mac, playing

_playing = playing(Mac())


def pytest_configure() -> None:
    _playing.__enter__()


def pytest_unconfigure() -> None:
    _playing.__exit__(None, None, None)
