"""Inspection of a fitted model: its claim, its guarantees and its stored records.

Files, in reading order:

- ``claims``: `Claim`, `claim_of`: walk a fitted model; stateless transformers, trusted or tried
  record by record
- ``guarantees``: Guarantees inside an estimator: find them, compose them, add up the fits of a
  search
- ``disclosure``: `check_disclosure`: signs, not proofs; leaves, parameters, groups of equal
  predictions
- ``stored_records``: All arrays inside a model; training records found in them, as each part sees
  them
- ``member_groups``: Groups as members of an audit: split, join, unit of a claim
- ``attempts``: Calls that may fail but must not swallow the caller's alarm
"""
