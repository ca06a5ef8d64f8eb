"""Certificates: what a model claims and was charged, signed, so that a stranger can check it.

``issuing`` writes them, ``signing`` signs, ``verification`` checks them, ``recomputing`` computes
each epsilon again from the events, and ``files`` reads what a model file says of itself.
"""

from .issuing import certificate
from .signing import create_key
from .verification import Check, Verification, verify_certificate

__all__ = ["Check", "Verification", "certificate", "create_key", "verify_certificate"]
