"""Comparability of members and non-members: do they differ by anything but membership?

An attack on two samples of different origin finds the difference, whatever the model learned.

Files, in reading order:

- ``blind_baseline``: both samples as one table, and whether classifiers that never see the model
  tell them apart
- ``matched_pairs``: the bounds of an audit on pairs of similar units, where the samples differ
"""
