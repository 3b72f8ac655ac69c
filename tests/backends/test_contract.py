"""The contract of every backend, run on each that is here."""

from tests.cases.contract import *  # noqa: F403
