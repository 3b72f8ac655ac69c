"""Names and calls of other libraries, and users' own classes and functions by name."""
