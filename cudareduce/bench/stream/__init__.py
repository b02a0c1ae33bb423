"""Streaming: arrays in host memory or in a file that are reduced on the GPU chunk by chunk."""
