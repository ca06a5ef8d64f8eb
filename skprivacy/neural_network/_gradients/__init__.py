"""Clipped sums of per-example gradients.

Files, in reading order:

- ``clipped_sum``: clip factors, adaptive clipping, and the sum of clipped gradients over a batch
- ``contributions``: norms and weighted sums of per-example gradients, by layer form
- ``bookkeeping``: one backward pass for all layers (Bu et al. 2023, Algorithm 1)
- ``perceptron``: the built-in perceptron, in numpy or torch
- ``trial``: choice of the method by a trial; per-example gradients of any module
- ``padded_sum``: the same sum over a padded batch, without waiting for a GPU
- ``group_batches``: batches of drawn groups, clipped jointly
- ``losses``: losses with one number per example
"""
