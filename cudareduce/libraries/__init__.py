"""Other libraries that reduce, compared with our kernels: one module each, and how they run."""
