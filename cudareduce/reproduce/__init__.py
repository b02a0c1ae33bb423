"""Published experiments, done again with their own sizes, their figures beside ours."""
