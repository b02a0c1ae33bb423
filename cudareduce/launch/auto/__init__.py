"""The kernel and launch shape of `auto`, for each problem and GPU."""
