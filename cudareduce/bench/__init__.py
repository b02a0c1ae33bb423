"""`bench` and `verify`: verify kernels, time the correct ones, make records."""
