"""Clipped sums of per-example gradients.

Read ``clipping.py`` (factors), ``contributions.py`` (norms and sums by layer form),
``bookkeeping.py`` (Bu et al. 2023), ``trial.py`` (choice of the method) and ``clipped_sum.py``.
"""
