"""Membership inference attacks.

Files, in reading order:

- ``membership_attack``: `MembershipAttack` (fit, score, threshold, decide), `LossThreshold`,
  `choose_threshold`
- ``thresholds``: `SignalThreshold`, `ReferenceThreshold`, `ShadowThreshold`
- ``shadow_attack``: `ShadowAttack`: the one constructor, pool handling; self-attack of shadow
  models
- ``update_membership``: `UpdatesAttack`: membership from updates
- ``likelihood_ratio``: `LiRA` (Carlini 2022, Algorithm 1), `RMIA` (Zarifzadeh 2024)
- ``strongest``: `StrongestAttack`: choose by self-attack; `LearnedRatio`: regression over
  self-attacks
- ``classifiers``: `ShokriAttack`, `MLLeaksAttack`, `SupervisedAttack`: an attack model on
  predictions
- ``quantile``: `QuantileAttack` (Bertran 2023)
- ``label_only``: `LabelOnlyAttack`: noise robustness and distance to the decision boundary
- ``few_neighbors``: `VulnerableRecordsAttack`, `IndirectInference` (Long 2018)
- ``white_box``: `GradientNormAttack`, `StolenMemoriesAttack`, `WhiteBoxAttack`
- ``white_box_encoder``: Encoder of per-layer gradients and activations (Nasr 2019)
"""
