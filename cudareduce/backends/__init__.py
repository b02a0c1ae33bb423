"""Where kernels run: CUDA, or the emulator on the CPU, behind one protocol."""
