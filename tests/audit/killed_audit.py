"""An audit that is killed while it trains shadow models: ``python -m tests.audit.killed_audit``."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification
from sklearn.tree import DecisionTreeClassifier

from skprivacy.attacks import LossThreshold, ShadowPool, StrongestAttack
from skprivacy.audit import audit

X, y = make_classification(600, n_features=5, flip_y=0.3, random_state=0)
N_SHADOWS, LAST = 6, 4


class Logged(DecisionTreeClassifier):
    """A tree that writes a line for each fit of a shadow model, and may be killed before one."""

    def fit(self, X, y):
        log = Path(os.environ["AUDIT_FOLDER"], "fits")
        with log.open("a") as stream:
            stream.write("fit\n")
        if len(log.read_text().splitlines()) == LAST and "AUDIT_SIGNAL" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y)


def audited(folder):
    """Audit with a pool that keeps its models, and knows no order that tells the members."""
    target = DecisionTreeClassifier(random_state=0).fit(X[:300], y[:300])
    order = np.random.default_rng(0).permutation(len(y))
    pool = ShadowPool(
        Logged(), n_shadows=N_SHADOWS, random_state=0, path=Path(folder) / "shadows"
    ).fit(X[order], y[order])
    attacks = [LossThreshold(), StrongestAttack(online=True, pool=pool)]
    return audit(target, X[:300], y[:300], X[300:], y[300:], attacks=attacks)


if __name__ == "__main__":
    os.environ |= {"AUDIT_FOLDER": sys.argv[1], "AUDIT_SIGNAL": "1"}
    from tests.audit import killed_audit  # classes known by this name

    killed_audit.audited(sys.argv[1])
