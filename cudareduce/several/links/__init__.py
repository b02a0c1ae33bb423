"""What lies between the GPUs of several ranks, and what it carries."""
