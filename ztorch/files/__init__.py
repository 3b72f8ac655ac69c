"""Files that are safe to read and written whole: safetensors, zips, artifacts' containers."""
