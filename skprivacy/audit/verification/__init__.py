"""Verification of a claim by many fits to neighbouring data sets.

Files, in reading order:

- ``verify_privacy``: verify_privacy, verify_release and their result
- ``neighbors``: worst-case neighbouring data sets, and runs of a release on them
- ``releases``: a fit as a release of numbers: independent clones, all numbers that a model holds
- ``threshold_tests``: tests chosen on pilot runs and counted in fresh ones
"""
