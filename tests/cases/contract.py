"""The contract of every backend, as tests that take the name of one."""

from tests.cases.contract_launches import *  # noqa: F403
from tests.cases.contract_memory import *  # noqa: F403
from tests.cases.contract_streams import *  # noqa: F403
