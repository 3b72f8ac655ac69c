"""The compiler. `pipeline.py` shows all its stages."""
