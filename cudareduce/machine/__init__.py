"""Properties of the GPU and of the host, as result files record them."""
