"""Attacks on generated records and their generators.

Files, in reading order:

- ``generator_attack``: `GeneratorAttack`: fit on generated records, score, evaluate
- ``distances``: `NearestGenerated`, `DensityRatio`, `LikelihoodRatio`
- ``discriminator``: `GenerativeAttack` (LOGAN)
- ``shadow_generators``: `MarginalAttack`, `ShadowGenerators`: refit the generator with and without
  a record
"""
