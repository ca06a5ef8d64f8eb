"""
PATE-G: a student that learns from a generator
==============================================

The first paper on PATE trained its student as the discriminator of a GAN. Besides the classes, the
student distinguishes public records from generated ones. The generator matches the mean of the
hidden features of real records ("feature matching"). The labels are released, so this costs no
privacy. :class:`~skprivacy.ensemble.PropagationStudent` is quicker and better: ``python
benchmarks/run.py accuracy/pate_students`` prints both at the same labels.

N. Papernot et al., "Semi-supervised knowledge transfer for deep learning from private training
data", ICLR 2017. T. Salimans et al., "Improved techniques for training GANs", NIPS 2016.
"""

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn
from torch.nn import functional as F


class GANStudent(ClassifierMixin, BaseEstimator):
    """The discriminator of an improved GAN, for standardised rows; -1 marks no label."""

    semi_supervised = True

    def __init__(self, units=256, noise=0.3, epochs=30, batch_size=128, random_state=0):
        self.units = units
        self.noise = noise
        self.epochs = epochs
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X, y):
        rows, labels = validate_data(self, X, y, dtype=np.float32)
        self.classes_ = np.setdiff1d(labels, [-1])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.random_state)
            self._play(torch.from_numpy(rows), labels)
        return self

    def _play(self, rows, labels):
        known = np.flatnonzero(labels != -1)
        codes = torch.from_numpy(np.searchsorted(self.classes_, labels[known]))
        width, units = rows.shape[1], self.units
        self.features_ = nn.Sequential(
            nn.Linear(width, units), nn.LeakyReLU(0.2), nn.Linear(units, units), nn.LeakyReLU(0.2)
        )
        self.scores_ = nn.Linear(units, len(self.classes_))
        generator = nn.Sequential(
            nn.Linear(100, units), nn.BatchNorm1d(units), nn.Softplus(),
            nn.Linear(units, units), nn.BatchNorm1d(units), nn.Softplus(), nn.Linear(units, width),
        )  # fmt: skip
        judge = [*self.features_.parameters(), *self.scores_.parameters()]
        judging = torch.optim.Adam(judge, lr=3e-4, betas=(0.5, 0.999))
        making = torch.optim.Adam(generator.parameters(), lr=3e-4, betas=(0.5, 0.999))
        for _ in range(self.epochs * len(rows) // self.batch_size):
            some = torch.randint(len(known), (64,))
            real = rows[torch.randint(len(rows), (self.batch_size,))]
            made = generator(torch.randn(self.batch_size, 100))

            # A record is real with odds of the sum of its classes' exponentials.
            odds_real, odds_made = (self._noisy(r).logsumexp(1) for r in (real, made.detach()))
            loss = F.cross_entropy(self._noisy(rows[known[some]]), codes[some])
            loss = loss + (F.softplus(-odds_real).mean() + F.softplus(odds_made).mean()) / 2
            judging.zero_grad()
            loss.backward()
            judging.step()

            apart = self.features_(real).mean(0).detach() - self.features_(made).mean(0)
            making.zero_grad()
            apart.square().sum().backward()
            making.step()

    def _noisy(self, rows):
        return self.scores_(self.features_(rows + self.noise * torch.randn_like(rows)))

    def predict(self, X):
        check_is_fitted(self, "scores_")
        rows = torch.from_numpy(validate_data(self, X, dtype=np.float32, reset=False))
        with torch.inference_mode():
            return self.classes_[self.scores_(self.features_(rows)).argmax(1).numpy()]


# %%
# On scikit-learn's digits, 1,000 are private and the others are public. PATE labels 60 of them.
if __name__ == "__main__":
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression, RidgeClassifier

    from skprivacy.ensemble import PATEClassifier, PropagationStudent

    X, y = load_digits(return_X_y=True)
    X = (X - 8.0) / 6.0
    ask = PATEClassifier(
        LogisticRegression(), RidgeClassifier(), n_teachers=20, n_queries=60, classes=range(10),
        epsilon=8.0, delta=1e-4, store_labels=True, random_state=0,
    )  # fmt: skip
    labels = ask.fit(X[:1000], y[:1000], X_public=X[1000:]).labels_
    print(ask.privacy_)
    print(f"ridge on 60 labels alone: {ask.score(X[1000:], y[1000:]):.3f}")
    for student in (GANStudent(epochs=100), PropagationStudent()):
        score = student.fit(X[1000:], labels).score(X[1000:], y[1000:])
        print(f"{student}: {score:.3f}")
