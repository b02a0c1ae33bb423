"""Since when is it slower? A line of JSON a run, the curve they make, and the steps in it."""
