"""What of the tools is for documentation alone is tested where its packages are."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("griffe") else ["docstrings.py"]
