"""Membership inference attacks.

Files, in reading order:

- ``labeled_records``: LabeledRecords: records with their labels, the X of every attack
- ``membership_attack``: MembershipAttack, the base: fit, score, threshold; LossThreshold
- ``thresholds``: SignalThreshold, ReferenceThreshold, ShadowThreshold
- ``shadow_attack``: ShadowAttack, the base of attacks with shadow models; self-attack
- ``likelihood_ratio``: LiRA (Carlini et al. 2022), RMIA (Zarifzadeh et al. 2024)
- ``strongest``: StrongestAttack, chosen by self-attack; LearnedRatio
- ``classifiers``: ShokriAttack, MLLeaksAttack, SupervisedAttack
- ``quantile``: QuantileAttack (Bertran et al. 2023)
- ``label_only``: LabelOnlyAttack: distance to the decision boundary, robustness to noise
- ``few_neighbors``: VulnerableRecordsAttack, IndirectInference (Long et al. 2018)
- ``white_box``: WhiteBoxAttack, StolenMemoriesAttack
- ``white_box_encoder``: attack network on gradients and activations (Nasr et al. 2019)
- ``update_membership``: UpdatesMembership: membership from the updates of federated training
"""
