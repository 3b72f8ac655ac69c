"""Our ELF linker: objects that LLVM emits become shared libraries and code objects."""
