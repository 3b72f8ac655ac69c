"""One file per driver. A file registers a driver under the file's name."""
