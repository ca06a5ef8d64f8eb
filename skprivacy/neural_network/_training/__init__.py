"""Private training runs: DP-SGD (Abadi et al. 2016, Algorithm 1) and DP-FTRL.

Files, in reading order:

- ``training_config``: TrainingConfig: the plan of sampler, noise, event and updates
- ``engine``: Training: DP-SGD, step by step
- ``early_stopping``: runs without privacy on quantile features, which end by held-out records
- ``target_releases``: the mean target, the slope and the mean error of a regressor
- ``update_rules``: momentum SGD, and Adam with noise correction (DP-AdamBC)
- ``skorch_rules``: settings of skorch that private training refuses
- ``mapped_rows``: records in single precision, in memory or on disk
- ``side_by_side``: several runs, whose clipped sums one stack computes
- ``graph_step``: a step as CUDA graphs on fixed memory
- ``process_group``: training in several processes (torch.distributed)
- ``torch_modes``: torch's global modes during private training
- ``adversarial``: a generator beside a private discriminator
- ``gradient_canaries``: canaries in gradient space, for audits
"""
