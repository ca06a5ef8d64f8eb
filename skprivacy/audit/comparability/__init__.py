"""Comparability of members and non-members: do they differ by anything but membership?

An attack on two samples of different origin finds the difference, whatever the model learned.

Files, in reading order:

- ``sample_units``: both samples as one numeric table, with the records or groups as units
- ``blind_baseline``: test of whether classifiers that never see the model tell the samples apart
- ``matched_pairs``: the bounds of an audit on pairs of similar units, where the samples differ
"""
