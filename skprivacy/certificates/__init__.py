"""Signed certificates of a model's privacy claim and charges, which third parties can check.

``issuing`` writes certificates, ``signing`` signs them, ``verification`` checks them,
``recomputing`` recomputes each epsilon from the events, and ``files`` reads the guarantee that a
model file states.

Files, in reading order:

- ``issuing``: `certificate`; digest and guarantee of a model file
- ``checking``: `verify_certificate`, `Verification`, `Check`
- ``recomputing``: Epsilon again by two accountants
- ``signing``: `create_key`, Ed25519 over section digests
"""

from .checking import Check, Verification, verify_certificate
from .issuing import certificate
from .signing import create_key

__all__ = ["Check", "Verification", "certificate", "create_key", "verify_certificate"]
