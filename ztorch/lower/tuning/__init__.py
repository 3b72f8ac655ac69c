"""Every tuned constant of lowering: its value, its unit, its meaning, and how it was measured.

Loop nests and cost models import the constants from here by name; `constants()` lists all rows.
Numbers that differ between processors are fields of `machines.processors.Processor` instead.
"""

from ztorch.lower.tuning.chains import *  # noqa: F403
from ztorch.lower.tuning.convolutions import *  # noqa: F403
from ztorch.lower.tuning.grid_attention import *  # noqa: F403
from ztorch.lower.tuning.grid_products import *  # noqa: F403
from ztorch.lower.tuning.grids import *  # noqa: F403
from ztorch.lower.tuning.loops import *  # noqa: F403
from ztorch.lower.tuning.plans import *  # noqa: F403
from ztorch.lower.tuning.products import *  # noqa: F403
from ztorch.lower.tuning.table import constants as constants
