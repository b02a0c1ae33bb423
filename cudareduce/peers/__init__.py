"""Libraries that reduce, beside our kernels: one file a library behind one protocol."""
