"""Clipped sums of per-example gradients.

Read ``clipping.py`` (factors), ``contributions.py`` (norms and sums by layer form),
``bookkeeping.py`` (Bu et al. 2023), ``trial.py`` (choice of the method) and ``clipped_sum.py``.

Files, in reading order:

- ``clipped_sum``: sum of clipped gradients over a batch, of any length or padded
- ``clipping``: clip factors; adaptive clipping on any device
- ``contributions``: norms and weighted sums of per-example gradients, by layer form
- ``bookkeeping``: one backward pass for all layers (Bu et al. 2023, Algorithm 1)
- ``perceptron``: the built-in perceptron: module, backpropagation, clipped sum, in numpy or torch
- ``trial``: which way to per-example gradients: tried against a loop; vmap and loop
- ``group_batches``: rows of each group; which examples of a batch are whose
- ``losses``: losses with one number an example
- ``device_clipping``: Adaptive clipping with its norm and count on the device of the gradients
"""
