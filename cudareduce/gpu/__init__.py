"""The GPU, through PyCUDA, cuda-bindings and NVML."""
