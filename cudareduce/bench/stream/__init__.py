"""Arrays that lie in the host's memory or in a file: streamed through the GPU, chunk by chunk."""
