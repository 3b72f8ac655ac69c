"""For authors of other libraries: the memory, the streams and the routines of each device, on raw
buffers, and kernels of one's own."""
