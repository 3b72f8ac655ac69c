"""Safe reading and atomic writing of files: safetensors, zips, containers of artifacts."""
