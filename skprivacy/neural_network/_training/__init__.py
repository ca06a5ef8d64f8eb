"""Private training runs.

Read ``config.py`` (the plan), ``noise.py`` (sampling, noise, events) and ``engine.py`` (DP-SGD,
Abadi et al. 2016, Algorithm 1) first; the other files serve the engine.

Files, in reading order:

- ``training_config``: TrainingConfig: one frozen plan of sampler, noise, event
- ``engine``: Training: DP-SGD (Abadi et al., Algorithm 1), one page; momentum, averaging,
  SingleProcess
- ``graph_step``: a step as CUDA graphs on fixed memory
- ``process_group``: training in several processes (torch.distributed)
- ``mapped_rows``: rows of memory-mapped matrices
- ``adversarial``: generator beside a private discriminator
- ``gradient_canaries``: canaries in gradient space, for audits
- ``stacked_fit``: a run as arrays, for the stacked trainer
- ``private_net``: Modules to train, built in or the user's, and the skorch net that trains with
  the engine
- ``torch_modes``: Torch's global modes during private training: precision, autocast, generators
  and devices
- ``update_rules``: Optimizers of flat weight vectors: momentum SGD, and Adam with noise correction
  (DP-AdamBC)
"""
