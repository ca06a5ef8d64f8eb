"""Models of tables, composition and simple attacks, beside interpret, OpenDP and Privacy Meter.

ebm     accuracy on the test file of Adult beside DP-EBM: medians of five fits, delta 1e-5, with the
        same public bounds on both sides
opendp  the least epsilon at delta 1e-5 that is proved for k releases by a Gaussian mechanism of one
        noise multiplier; OpenDP composes them as zero-concentrated DP and converts the sum
meter   AUC and TPR at 1% FPR of Privacy Meter's two metrics and of ours after the same paper, on
        one network of 128 units with 800 members of Location-30, with 16 reference models trained
        on other records; means of three seeds

A missing peer is left out.
"""

from __future__ import annotations

import importlib.metadata
import sys
import time
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier

from benchmarks.shared.data import fetch_adult, fetch_location30
from benchmarks.shared.quick import choose, has_peer, make_parser
from skprivacy import (
    DPSGDClassifier,
    ObjectivePerturbationClassifier,
    PrivateAdditiveClassifier,
    make_private_pipeline,
)
from skprivacy.accounting import GaussianEvent, RepeatedEvent, epsilon_of
from skprivacy.attacks import LabeledRecords, LossThreshold, ReferenceThreshold, ShadowPool
from skprivacy.preprocessing import BoundedColumn

SEEDS, DELTA = choose(5, 1), 1e-5
EPSILONS = choose((0.1, 1.0, 10.0), (1.0,))


def make_ebm(schema: Any, epsilon: float, seed: int) -> Any:
    """Return DP-EBM as it comes, with the same public facts as our models."""
    from interpret.privacy import DPExplainableBoostingClassifier

    numbers = {name: fact for name, fact in schema.items() if isinstance(fact, BoundedColumn)}
    return DPExplainableBoostingClassifier(
        feature_names=list(schema),
        feature_types=["continuous" if name in numbers else "nominal" for name in schema],
        privacy_bounds={name: (fact.lower, fact.upper) for name, fact in numbers.items()},
        epsilon=epsilon, delta=DELTA, n_jobs=1, random_state=seed,
    )  # fmt: skip


def ebm() -> None:
    train, test = (fetch_adult(subset=subset, as_frame=True) for subset in ("train", "test"))
    schema, classes = train.schema, np.unique(train.target)
    columns = list(schema)
    makers: dict[str, Any] = {
        "objective perturbation": lambda e, _: make_private_pipeline(
            schema, ObjectivePerturbationClassifier(epsilon=e, delta=DELTA, classes=classes)
        ),
        "additive": lambda e, _: PrivateAdditiveClassifier(e, DELTA, schema=schema),
        "network": lambda e, seed: make_private_pipeline(
            schema, DPSGDClassifier(epsilon=e, delta=DELTA, classes=classes, random_state=seed)
        ),
    }
    if has_peer("interpret.privacy", "pip install interpret-core"):
        makers["DP-EBM"] = lambda e, seed: make_ebm(schema, e, seed)
    rows = []
    for name, make in makers.items():
        for epsilon in EPSILONS:
            start, found = time.process_time(), []
            for seed in range(SEEDS):
                model = make(epsilon, seed).fit(train.data[columns], np.asarray(train.target))
                right = model.predict(test.data[columns]) == np.asarray(test.target)
                found.append(float(np.mean(right)))
            seconds = (time.process_time() - start) / SEEDS
            rows.append((name, epsilon, np.median(found), min(found), max(found), seconds))
            print(rows[-1], flush=True)
    columns = ["model", "epsilon", "accuracy", "least", "most", "CPU seconds"]
    if "DP-EBM" in makers:
        print("interpret-core", importlib.metadata.version("interpret-core"))
    print(pd.DataFrame(rows, columns=columns).round(3).to_string(index=False))


def compose_with_opendp(noise: float, k: int) -> float:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    one = dp.m.make_gaussian(*space, scale=noise)
    whole = dp.c.make_zCDP_to_approxDP(dp.c.make_composition([one] * k) if k > 1 else one)
    return float(whole.map(1.0).epsilon(DELTA))


def opendp() -> None:
    rows, installed = [], has_peer("opendp.prelude", "pip install opendp")
    for noise, k in ((5.0, 1), (5.0, 10), (20.0, 100), (50.0, 1000)):
        ours = epsilon_of(RepeatedEvent(GaussianEvent(noise), k), DELTA, "add_remove")
        rows.append((noise, k, ours, compose_with_opendp(noise, k) if installed else np.nan))
    if installed:
        print("opendp", importlib.metadata.version("opendp"))
    print(pd.DataFrame(rows, columns=["noise", "releases", "ours", "OpenDP"]).round(3).to_string())


def attack_with_meter(target: Any, references: list[Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return AUC and TPR at 1% FPR of Privacy Meter's two metrics."""
    sys.modules.setdefault("tensorflow", ModuleType("tensorflow"))  # imported, and not used here
    from privacy_meter.dataset import Dataset
    from privacy_meter.hypothesis_test import linear_itp_threshold_func
    from privacy_meter.information_source import InformationSource
    from privacy_meter.information_source_signal import ModelLoss
    from privacy_meter.metric import PopulationMetric, ReferenceMetric
    from privacy_meter.model import Model

    class Losses(Model):
        """Privacy Meter's own class for scikit-learn imports tensorflow, and is for two classes."""

        def get_loss(self, X: Any, y: Any, per_point: bool = True) -> np.ndarray:
            column = np.searchsorted(target.classes_, y)
            proba = self.model_obj.predict_proba(X)[np.arange(len(y)), column]
            return -np.log(np.maximum(proba, 1e-12))

        get_logits = get_grad = get_intermediate_outputs = None  # not asked by these metrics

    def source(models: list[Any], names: list[str]) -> Any:
        data = {name: {"x": parts[part][0], "y": parts[part][1]} for name, part in names}
        return InformationSource([Losses(m, None) for m in models], [Dataset(data, "x", "y")])

    own = source([target], [("train", "in"), ("test", "out")])
    asked = {
        "population": PopulationMetric(
            own, source([target], [("train", "others")]), [ModelLoss()], linear_itp_threshold_func
        ),
        "reference": ReferenceMetric(
            own, source(references, [("train", "in"), ("test", "out")]), [ModelLoss()],
            linear_itp_threshold_func,
        ),
    }  # fmt: skip
    found = {}
    for name, metric in asked.items():
        metric.prepare_metric()
        (result,) = metric.run_metric(np.linspace(0, 1, 1001))
        fpr, tpr = result.fp / (result.fp + result.tn), result.tp / (result.tp + result.fn)
        found[name] = float(result.roc_auc), float(tpr[fpr <= 0.01].max(initial=0.0))
    return found


def meter() -> None:
    X, y = fetch_location30(return_X_y=True)
    rows, installed = [], has_peer("privacy_meter", "pip install privacy-meter")
    for seed in range(choose(3, 1)):
        order = np.random.default_rng(seed).permutation(len(y))[:3200]
        n = len(order) // 4
        pick = {"in": order[:n], "out": order[n : 2 * n], "others": order[2 * n :]}
        parts = {k: (np.asarray(X, np.float32)[v], np.asarray(y)[v]) for k, v in pick.items()}
        net = MLPClassifier((128,), activation="tanh", alpha=0.0, max_iter=60, random_state=seed)
        target = clone(net).fit(*parts["in"])
        pool = ShadowPool(net, n_shadows=choose(16, 4), random_state=seed).fit(*parts["others"])
        theirs = attack_with_meter(target, pool.estimators_, parts) if installed else {}
        for name, found in theirs.items():
            rows.append((f"Privacy Meter, {name}", *found))
        for attack in (LossThreshold(target), ReferenceThreshold(target, pool=pool)):
            records = {name: LabeledRecords(*part) for name, part in parts.items()}
            result = attack.fit(records["others"]).evaluate(records["in"], records["out"])
            rows.append((type(attack).__name__, result.auc, result.tpr_at_fpr(0.01).tpr))
    table = pd.DataFrame(rows, columns=["attack", "AUC", "TPR at 1% FPR"])
    if installed:
        print("privacy-meter", importlib.metadata.version("privacy-meter"))
    print(table.groupby("attack").mean().round(3).to_string())


def main() -> None:
    parts = {"ebm": ebm, "opendp": opendp, "meter": meter}
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", default=list(parts), metavar="PART")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(parts):
        parser.error(f"unknown parts {sorted(unknown)}; there are {list(parts)}")
    warnings.simplefilter("ignore")
    for part in options.parts:
        parts[part]()


if __name__ == "__main__":
    main()
