"""The commands of the command line, one file each.

Files, in reading order:

- ``audit``: `skprivacy audit`
- ``audit_predictions``: `skprivacy audit-predictions`
- ``budget``: `skprivacy budget`
- ``datasets``: `skprivacy datasets`
- ``predict``: `skprivacy predict`
- ``schema``: `skprivacy schema`
- ``sweep``: `skprivacy sweep`
- ``train``: `skprivacy train`
- ``key``: ``skprivacy key``: create a key for signing certificates
- ``verify``: ``skprivacy verify``: check a certificate, without data and without trust in its
  issuer
"""
