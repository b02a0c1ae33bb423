"""What nvcc makes of every kernel, judged without a GPU."""
