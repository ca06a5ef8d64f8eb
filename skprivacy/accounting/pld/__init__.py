"""Privacy loss distributions (PLD): tight numerical accounting of composed events.

Files, in reading order:

- ``distribution``: PrivacyLossDistribution: epsilon and delta of an event
- ``pairs``: dominating pairs; a pair from points of a privacy curve
- ``sampled_pairs``: pairs of Poisson samples, also for groups
- ``compose``: composition on a pessimistic grid by one FFT
- ``saddle_point``: plan of the grid, window and tilt
- ``argmax``: privacy curve of a block of noisy arg-max queries
- ``channels``: channels that cover one such query, with Gaussian or Laplace noise
"""
