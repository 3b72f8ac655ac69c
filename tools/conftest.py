"""Tools for documentation alone are tested where their packages are."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("griffe") else ["docstrings.py"]
