"""Benchmarks against other libraries and published figures: ``python benchmarks/run.py --list``.

``speed`` times, ``accuracy`` scores models, ``attacks`` and ``audits`` measure how much is shown,
``papers`` repeats published experiments. ``shared`` has what several of them need.
"""
