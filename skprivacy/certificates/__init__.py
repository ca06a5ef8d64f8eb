"""Signed certificates of a model's privacy claim and charges, which third parties can check.

Files, in reading order:

- ``issuing``: certificate; digest and guarantee of a model file
- ``checking``: verify_certificate, without data and without trust in the issuer
- ``recomputing``: epsilon of a certificate's events again, by two accountants
- ``signing``: Ed25519 keys and signatures
"""

from .checking import verify_certificate
from .issuing import issue_certificate
from .signing import create_key

__all__ = ["create_key", "issue_certificate", "verify_certificate"]
