"""Audits by canaries: records, tables, gradients and labels inserted by fair coins.

Files, in reading order:

- ``one_run``: `audit_one_run`, `OneRunReport`
- ``coins``: Fair coins, record canaries, table canaries; the claimed curve under a coin
- ``gradient_canary_audit``: Canaries in gradients and the likelihood ratio of the noisy sums
- ``synthesizer_audit``: `audit_synthesizer`, `SynthesizerAudit`
"""
