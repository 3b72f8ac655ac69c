"""The machines that code is made for, as rows of numbers: processors, chips of GPUs, backends."""
