"""What every backend promises, as tests that take the name of a backend."""

from tests.cases.contract_launches import *  # noqa: F403
from tests.cases.contract_memory import *  # noqa: F403
from tests.cases.contract_streams import *  # noqa: F403
