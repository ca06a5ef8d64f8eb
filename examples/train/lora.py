"""
Private fine-tuning of a language model
=======================================

Low-rank adapters (LoRA, Hu et al. 2022) train a few thousand numbers beside the frozen weights of a
pretrained transformer. :class:`~skprivacy.neural_network.DPSGDClassifier` trains such a module as
any other: each record's gradient for the adapters is clipped, and the frozen weights cost nothing.

The libraries are the extra ``lora``: ``pip install 'skprivacy[torch,lora]'``. The program reads the
pretrained weights from a folder, given as its argument, and the texts from ``texts.csv`` with the
columns ``text`` and ``label``.
"""

import sys

import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from sklearn.model_selection import train_test_split
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from skprivacy import DPSGDClassifier

LENGTH = 64  # tokens of a text: longer texts are cut, shorter ones are filled up


class Adapted(torch.nn.Module):
    """A pretrained classifier of tokens, with adapters of rank 8 in its attention."""

    def __init__(self, folder):
        super().__init__()
        model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
        config = LoraConfig(task_type="SEQ_CLS", r=8, target_modules=["query", "value"])
        self.model = get_peft_model(model, config)
        self.padding = model.config.pad_token_id

    def forward(self, tokens):
        tokens = tokens.long()  # fit() passes numbers, and a token is an index
        return self.model(tokens, attention_mask=tokens != self.padding).logits


def main(folder):
    """Train the adapters at epsilon 3, and print the accuracy on other texts."""
    texts = pd.read_csv("texts.csv")
    tokens = AutoTokenizer.from_pretrained(folder)(
        list(texts["text"]), max_length=LENGTH, padding="max_length", truncation=True
    )["input_ids"]
    X, X_new, y, y_new = train_test_split(
        pd.DataFrame(tokens).to_numpy("float32"), texts["label"].to_numpy(), random_state=0
    )
    network = DPSGDClassifier(module=Adapted(folder), epsilon=3.0, delta=1e-6, classes=[0, 1])
    network.fit(X, y)
    print(network.privacy_)  # "book-keeping" below: gradients at about the cost of a plain step
    print(network.gradients_, network.score(X_new, y_new))


if __name__ == "__main__":
    main(sys.argv[1])
