"""Whether what several ranks do is as fast as before: jobs of ranks, begun anew for each look."""
