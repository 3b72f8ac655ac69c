"""Tables of the machines that code is generated for: processors, GPUs, their chips, backends."""
