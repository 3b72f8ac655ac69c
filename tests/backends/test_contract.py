"""What every backend promises, tried on each that is here."""

from tests.cases.contract import *  # noqa: F403
