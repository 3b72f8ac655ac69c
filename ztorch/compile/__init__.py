"""The compiler: `pipeline.py` is the whole way on one page."""
