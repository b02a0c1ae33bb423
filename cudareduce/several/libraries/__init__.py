"""What others combine arrays of several GPUs with."""
