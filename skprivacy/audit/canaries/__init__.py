"""Audits by canaries: records, tables and gradients inserted by fair coins.

Files, in reading order:

- ``one_run``: audit_one_run
- ``one_run_report``: the test of a claim by guesses, and its report
- ``coins``: canaries and the coins that insert them; the claimed curve under a coin
- ``gradient_canary_audit``: canaries in gradients, and their likelihood ratios
- ``noise_test``: the noise of a network's sums against its claimed size and law
- ``synthesizer_audit``: audit_synthesizer and its report
"""
