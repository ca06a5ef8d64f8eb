"""Bare torch modules are asked as they are, and left as they were."""

import numpy as np
import pytest
from sklearn.datasets import make_classification

from skprivacy.attacks import LabeledRecords, LiRA, LossThreshold, ShadowPool
from skprivacy.audit import audit

pytestmark = pytest.mark.heavy

torch = pytest.importorskip("torch", reason="the extra for networks is not installed")

N = 200
X, y = make_classification(2 * N, n_features=40, n_informative=5, flip_y=0.3, random_state=0)
PARTS = (X[:N], y[:N], X[N:], y[N:])


@pytest.fixture
def module():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(40, 64),
        torch.nn.BatchNorm1d(64),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.1),
        torch.nn.Linear(64, 2),
    )
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    inputs, label = torch.as_tensor(X[:N], dtype=torch.float32), torch.as_tensor(y[:N])
    for _ in range(150):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), label).backward()
        optimiser.step()
    return net


def test_a_bare_module_is_audited_without_shadow_models(module):
    module[3].eval()
    modes = [part.training for part in module.modules()]
    report = audit(module, *PARTS)
    assert [part.training for part in module.modules()] == modes
    assert [finding.result.attack for finding in report.findings] == ["LossThreshold"]
    assert report.findings[0].result.auc > 0.65
    assert report.not_measured == ("StrongestAttack",)
    assert "no fit, so shadow models cannot be trained like it" in repr(report)
    assert report.model == "Sequential (a torch module of 2 classes)"
    assert report.train_accuracy > 0.95
    with pytest.raises(ValueError, match="cannot measure anything: The model has no fit"):
        audit(module, *PARTS, attacks=[LiRA()])


def test_logits_probabilities_and_one_output_say_the_same(module):
    module.eval()
    softmaxed = torch.nn.Sequential(module, torch.nn.Softmax(dim=1))

    class OneOutput(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, inputs):
            logits = self.inner(inputs)
            return logits[:, 1] - logits[:, 0]

    records = LabeledRecords(X, y)
    own = [
        LossThreshold(target).fit(records).decision_function(records)
        for target in (module, softmaxed, OneOutput())
    ]
    assert own[1] == pytest.approx(own[0], abs=1e-4)
    assert own[2] == pytest.approx(own[0], abs=1e-4)


def test_a_module_is_compared_with_modules_trained_elsewhere(module):
    rng = np.random.default_rng(0)
    half = rng.random((2, 2 * N)) < 0.5
    said = rng.dirichlet([1, 1], size=(4, 2 * N))
    pool = ShadowPool.from_predictions(X, said, np.concatenate([half, ~half]), [0, 1])
    report = audit(module, *PARTS, attacks=[LiRA(pool=pool)])
    assert report.findings[0].result.auc_interval[0] > 0.5


def test_words_stay_numbers():
    net = torch.nn.Sequential(torch.nn.EmbeddingBag(10, 3), torch.nn.Linear(3, 4)).half()
    words = np.random.default_rng(0).integers(0, 10, (40, 5))
    attack = LossThreshold(net.to(torch.bfloat16)).fit(LabeledRecords(words, np.arange(40) % 4))
    assert np.isfinite(attack.decision_function(LabeledRecords(words, np.arange(40) % 4))).all()


def test_outputs_that_are_no_logits_are_refused():
    with pytest.raises(ValueError, match="expected one finite logit"):
        audit(torch.nn.Unflatten(1, (4, 10)), *PARTS)
