"""The GPU, through PyCUDA, the driver's library and NVML."""
