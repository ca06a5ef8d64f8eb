"""Verification of a claim by fits to neighbouring data sets.

Files, in reading order:

- ``verify_privacy``: `verify_privacy`, `verify_release`, `PrivacyVerification`
- ``neighbors``: Worst-case neighbouring data sets
- ``releases``: A fit as a release of numbers: independent clones, at the epsilon where mistakes
  show; all numbers a model holds
- ``threshold_tests``: Scores that separate runs; thresholds settled on pilot runs, counted in
  fresh ones
"""
