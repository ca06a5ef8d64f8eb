"""Membership inference on generators and their synthetic records.

Files, in reading order:

- ``generator_attack``: GeneratorAttack, the base: fit on generated records, score, evaluate
- ``distances``: NearestGenerated, DensityRatio, LikelihoodRatio
- ``discriminator``: GenerativeAttack (LOGAN)
- ``shadow_generators``: ShadowGenerators (TAPAS) and MarginalAttack (MAMA-MIA)
"""
