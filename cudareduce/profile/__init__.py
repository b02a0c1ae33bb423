"""What holds a kernel up: counters of the hardware in words, and what is known without a GPU."""
