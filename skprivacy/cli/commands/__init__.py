"""The commands of the command line, one file each.

Files, in reading order:

- ``train``: ``skprivacy train``: train a private model, state its guarantee and save it
- ``predict``: ``skprivacy predict``: apply a saved model to a table
- ``audit``: ``skprivacy audit``: test the claim of a saved or a new model by attacks
- ``audit_predictions``: ``skprivacy audit-predictions``: test a claim by tables of predictions
- ``sweep``: ``skprivacy sweep``: utility and leakage at several privacy levels
- ``budget``: ``skprivacy budget``: create, charge, plan and inspect a privacy budget
- ``schema``: ``skprivacy schema``: draft a schema, check and confirm it
- ``datasets``: ``skprivacy datasets``: list the built-in data sets
- ``key``: ``skprivacy key``: create a key for signing certificates
- ``verify``: ``skprivacy verify``: check a certificate
"""
