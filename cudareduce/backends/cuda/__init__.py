"""The GPU backend: PyCUDA, the CUDA driver library and NVML."""
