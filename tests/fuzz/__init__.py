"""Texts of others, near to right and wrong: headers, sizes, result files, foreign sources.

Only a CudareduceError may come of them, and soon. The tests try a few; `python -m tests.fuzz
--minutes 60` tries many, and keeps what fails under `seeds/`, where the tests find it again.
"""
