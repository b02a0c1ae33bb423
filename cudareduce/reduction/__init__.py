"""What is reduced: sizes, types, operators, inputs, and the right answers."""
