"""One array that lies on several GPUs, reduced to one answer on all of them."""
