"""The CPU emulator: its C++ sources, and the toolchain that compiles kernels against them."""
