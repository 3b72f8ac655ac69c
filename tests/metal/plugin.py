"""A plugin of pytest: the whole run has a Mac's GPU, played by tests/metal/fake.py."""

from tests.metal.fake import Mac, playing

_playing = playing(Mac())


def pytest_configure() -> None:
    _playing.__enter__()


def pytest_unconfigure() -> None:
    _playing.__exit__(None, None, None)
