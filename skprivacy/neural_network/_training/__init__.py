"""Private training runs.

Read ``config.py`` (the plan), ``noise.py`` (sampling, noise, events) and ``engine.py`` (DP-SGD,
Abadi et al. 2016, Algorithm 1) first; the other files serve the engine.
"""
