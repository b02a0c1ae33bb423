"""In which order a kernel or a library adds, recovered from outside."""
