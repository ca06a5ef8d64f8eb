"""Inspection of a fitted model: its claim, its guarantees and its stored records.

Files, in reading order:

- ``claims``: Claim, and claim_of for any fitted model
- ``steps``: transformers that learn nothing
- ``guarantees``: find, compose and read guarantees; add up the fits of a search
- ``disclosure``: check_disclosure: signs of disclosure without attacks
- ``disclosure_report``: its report, one check for each sign
- ``stored_records``: training records found in a model's arrays
- ``member_groups``: groups as members of an audit
"""
