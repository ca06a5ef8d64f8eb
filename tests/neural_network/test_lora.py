"""Transformers of Hugging Face with low-rank adapters train as any other module does.

Opacus issue 820: the weights of adapters were silently wrong after training.
"""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft", reason="the extra lora")
transformers = pytest.importorskip("transformers", reason="the extra lora")

from torch import nn  # noqa: E402

from skprivacy import DPSGDClassifier  # noqa: E402
from skprivacy.neural_network._gradients.clipped_sum import _SAFETY, ClippedGradientSum  # noqa: E402
from skprivacy.neural_network._gradients.trial import PROBES, Probe  # noqa: E402
from skprivacy.neural_network._training.engine import flatten_parameters  # noqa: E402

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings("ignore"),  # of transformers and peft about their own names
]
N_TOKENS, LENGTH = 50, 8
LOSS = nn.CrossEntropyLoss(reduction="none")


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=N_TOKENS, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2, num_labels=2,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, attn_pdrop=0, resid_pdrop=0, embd_pdrop=0,
    )  # fmt: skip
    return transformers.GPT2ForSequenceClassification(config), ["c_attn"]


def bert():
    config = transformers.BertConfig(
        vocab_size=N_TOKENS, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=LENGTH, num_labels=2, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config), ["query", "value"]


class Adapted(nn.Module):
    """A classifier of tokens whose own weights are frozen, with adapters of rank 2."""

    def __init__(self, make):
        super().__init__()
        torch.manual_seed(0)
        model, layers = make()
        config = peft.LoraConfig(task_type="SEQ_CLS", r=2, lora_alpha=4, target_modules=layers)
        self.model = peft.get_peft_model(model, config)

    def forward(self, tokens):
        return self.model(input_ids=tokens.long()).logits


def records(n):
    tokens = np.random.default_rng(0).integers(3, N_TOKENS, size=(n, LENGTH))
    return tokens.astype(np.float32), (tokens[:, 0] > N_TOKENS // 2).astype(int)


def adapters(module):
    return {name: p.detach() for name, p in module.named_parameters() if "lora_" in name}


@pytest.mark.parametrize("make", [gpt2, bert])
def test_clipped_gradients_equal_a_loop_over_records(make):
    module, clip = Adapted(make), 0.05
    for weights in adapters(module).values():
        nn.init.normal_(weights, std=0.3)  # or half of the gradients would be zero
    X, y = map(torch.as_tensor, records(12))
    alone = copy.deepcopy(module).double()
    rows = []
    for x, target in zip(X, y, strict=True):
        trained = [p for p in alone.parameters() if p.requires_grad]
        found = torch.autograd.grad(LOSS(alone(x[None]), target[None]).sum(), trained)
        rows.append(torch.cat([g.flatten() for g in found]))
    rows = torch.stack(rows)
    expected = (rows * (clip / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
    assert (rows.norm(dim=1) > clip).any()
    _, total = flatten_parameters(module)
    probe = Probe(X[:PROBES], torch.arange(PROBES) % 2, 2)
    engine = ClippedGradientSum(module, LOSS, clip / _SAFETY, probe=probe)
    assert engine.gradients.name == "book-keeping"
    total.zero_()
    engine(X, y)
    # single precision through two layers of attention
    assert (total - expected).norm() <= 1e-4 * expected.norm()


@pytest.mark.parametrize("make", [gpt2, bert])
def test_adapters_are_trained_and_frozen_weights_are_not(make):
    """Without noise, which would move adapters that no gradient reaches."""
    module = Adapted(make)
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    network = DPSGDClassifier(module=module, epsilon=math.inf, classes=[0, 1], epochs=2)
    network.fit(*records(200))
    assert network.gradients_ == "book-keeping"
    for name, p in network.module_.named_parameters():
        moved = not torch.equal(p.detach(), before[name])
        assert moved == p.requires_grad, name
    assert all(weights.any() for weights in adapters(network.module_).values())
