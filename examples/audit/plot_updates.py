"""
Leakage of federated updates
============================

Six hospitals train a network on handwritten digits. Their records stay with them, but the updates
reveal records. Which defence helps? Three attacks, which know the defence, ask three questions. Is
a record in a hospital's table? Does a hospital have more heavy handwriting than others? Which
record is behind an update? The figure compares each success with guessing and with the limit of the
guarantee.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from skprivacy.accounting import GaussianEvent, PrivacyGuarantee, RepeatedEvent
from skprivacy.attacks import (
    GradientInversion,
    LabeledRecords,
    PropertyInference,
    Updates,
    UpdatesMembership,
)

PARTIES, N, ROUNDS, RATE, NORM, NOISE = 6, 100, 60, 1.0, 1.0, 10.0
X, y = load_digits(return_X_y=True)
X = X / 16
order = np.random.default_rng(0).permutation(len(y))
X, y = X[order], y[order]
everyone, others, known = np.arange(600), np.arange(600, 1000), np.arange(1000, 1797)
heavy = X.mean(axis=1) > np.median(X.mean(axis=1))
net = MLPClassifier((32,), activation="tanh", max_iter=1, random_state=0)
start = Updates.weights_of(net.partial_fit(X[known], y[known], classes=np.arange(10)))

# %%
# A hospital sends the mean gradient of its records, changed by its defence.


def layers(weights):
    parts = np.split(weights, np.cumsum([64 * 32, 32, 32 * 10]))
    return parts[0].reshape(64, 32), parts[1], parts[2].reshape(32, 10), parts[3]


def gradients(weights, rows):
    """Return the gradient of each record."""
    first, first_bias, second, second_bias = layers(weights)
    hidden = np.tanh(X[rows] @ first + first_bias)
    error = softmax(hidden @ second + second_bias, axis=1) - np.eye(10)[y[rows]]
    below = (error @ second.T) * (1 - hidden**2)
    outer = [X[rows][:, :, None] * below[:, None], hidden[:, :, None] * error[:, None]]
    flat = [part.reshape(len(rows), -1) for part in outer]
    return np.hstack([flat[0], below, flat[1], error])


def plain(slopes, random):
    return slopes.mean(axis=0)


def clipped(slopes, random):
    norms = np.linalg.norm(slopes, axis=1, keepdims=True)
    return (slopes * np.minimum(1, NORM / norms)).mean(axis=0)


def noisy(slopes, random):
    return clipped(slopes, random) + NOISE * NORM / N * random.normal(size=slopes.shape[1])


def largest(slopes, random):
    mean = slopes.mean(axis=0)
    return np.where(np.abs(mean) >= np.quantile(np.abs(mean), 0.95), mean, 0.0)


def signs(slopes, random):
    mean = slopes.mean(axis=0)
    return np.sign(mean) * np.abs(mean).mean()


# %%
# For each defence: the update of a hospital, the noise that the server adds to the mean, and
# whether the attacker sees each update, as the server does, or only the mean (with secure
# aggregation).
shared = NOISE * NORM / (PARTIES * N)
defences = {
    "none": (plain, 0.0, True),
    "clipping": (clipped, 0.0, True),
    "signs alone": (signs, 0.0, True),
    "largest 5%": (largest, 0.0, True),
    "secure aggregation": (plain, 0.0, False),
    "central noise": (clipped, shared, False),
    "local noise": (noisy, 0.0, True),
}


def trained(send, extra, rows, n_rounds, random):
    """Return weights before each round, what each party sent, and the weights after the last."""
    weights, before, sent = start, [], []
    for _ in range(n_rounds):
        before.append(weights)
        sent.append([send(gradients(weights, part), random) for part in rows])
        mean = np.mean(sent[-1], axis=0)
        weights = weights - RATE * (mean + extra * random.normal(size=len(mean)))
    return np.array(before), np.array(sent), weights


def accuracy(weights):
    first, first_bias, second, second_bias = layers(weights)
    outputs = np.tanh(X[others] @ first + first_bias) @ second + second_bias
    return (outputs.argmax(axis=1) == y[others]).mean()


def mixture(share, n, pool, random):
    """Return records of which a share is heavy."""
    picks = ((heavy, round(share * n)), (~heavy, n - round(share * n)))
    return np.concatenate([random.permutation(pool[kind[pool]])[:k] for kind, k in picks])


SEEN = [0, 20, 40]  # the attacker looks at three of the rounds


def membership(send, extra, alone, before, sent, random):
    """Attack the first hospital, or all together where no update is seen alone."""
    views = sent[SEEN, 0] if alone else sent[SEEN].mean(axis=1)
    views = views + extra * random.normal(size=views.shape)
    n = N if alone else PARTIES * N
    limit = NORM if send in (clipped, noisy) else None
    noise = RATE * (NOISE * NORM / N if send is noisy else extra)
    starts = before[SEEN]
    seen = Updates(net, starts, starts - RATE * views, RATE, n, limit, noise)
    records = LabeledRecords(X, y)
    attack = UpdatesMembership(seen, n_reference=500).fit(records[known])
    return attack.evaluate(records[:n], records[others])


def property_(send, extra, alone, before, random):
    """Attack new hospitals, most of whose handwriting is heavy or light."""

    def update(rows, seed):
        random = np.random.default_rng(seed)
        mean = send(gradients(start, rows), random)
        if not alone:
            rest = [mixture(0.5, N, known, random) for _ in range(PARTIES - 1)]
            mean = np.mean([mean, *(send(gradients(start, r), random) for r in rest)], axis=0)
        return start - RATE * (mean + extra * random.normal(size=len(mean)))

    def simulated(weights, records, labels, seed):
        return update(records[:, 0].astype(int), seed)

    template = Updates(net, start[None], start[None], RATE, N)
    attack = PropertyInference(template, train=simulated, n_shadows=40, random_state=0)
    attack.fit(known[:, None], y[known], heavy[known], shares=(0.3, 0.7))
    held = np.arange(1000)
    new = [
        [
            Updates(net, start[None], [update(mixture(share, N, held, random), seed)], RATE, N)
            for seed in range(1000, 1030)
        ]
        for share in (0.7, 0.3)
    ]
    return attack.evaluate(*new)


def inversion(send, extra, alone):
    """Search for the records behind an update of one record, or a mean of six such updates."""
    random, size = np.random.default_rng(0), 1 if alone else PARTIES
    batches = [everyone[k * size : (k + 1) * size] for k in range(10)]
    sent = []
    for rows in batches:
        mean = np.mean([send(gradients(start, rows[[k]]), random) for k in range(size)], axis=0)
        mean += extra * N * random.normal(size=len(mean))  # the noise is for the sum
        first, first_bias, second, second_bias = layers(mean)
        sent.append([first.T, first_bias, second.T, second_bias])
    limit = NORM if send is clipped or send is noisy else None
    attack = GradientInversion(net, max_grad_norm=limit, n_init=1, max_iter=150, random_state=0)
    attack.fit(X[known], y[known])
    return attack.evaluate(sent, [(X[rows], y[rows]) for rows in batches], labels_known=True)


# %%
rows = {}
guarantee = PrivacyGuarantee(RepeatedEvent(GaussianEvent(NOISE), ROUNDS), at_delta=1e-5)
rates = np.linspace(0, 1, 1001)
allowed = np.trapezoid(guarantee.tpr_bound(rates), rates)
for name, (send, extra, alone) in defences.items():
    random = np.random.default_rng(0)
    before, sent, final = trained(send, extra, everyone.reshape(PARTIES, N), ROUNDS, random)
    found = membership(send, extra, alone, before, sent, random)
    about = property_(send, extra, alone, before, random)
    read = inversion(send, extra, alone)
    bound = allowed if name.endswith("noise") else 1.0
    rows[name] = (accuracy(final), found, about, bound, read)
    print(
        f"{name:20} accuracy {accuracy(final):.2f}, membership {found.auc:.2f} (at most "
        f"{bound:.2f}), property {about.auc:.2f}, pixels read "
        f"{read.share:.2f} (blind {read.null_shares[read.best_null]:.2f})"
    )
print(f"noise: {guarantee}")

# %%
places = np.arange(len(rows))[::-1]
_, (left, middle, right) = plt.subplots(
    1, 3, figsize=(10, 4.2), sharey=True, width_ratios=(3, 1, 1), layout="constrained"
)
for offset, which, colour, label in (
    (0.12, 1, "#1b6ca8", "is a record in the table?"),
    (-0.12, 2, "#c0392b", "has a hospital more heavy handwriting?"),
):
    results = [row[which] for row in rows.values()]
    areas = np.array([result.auc for result in results])
    ends = np.abs(np.array([result.auc_interval for result in results]).T - areas)
    left.errorbar(areas, places + offset, xerr=ends, fmt="o", color=colour, label=label)
bounds = [row[3] for row in rows.values()]
left.plot(bounds, places + 0.12, "|", ms=14, color="#1b6ca8", label="guaranteed at most")
left.axvline(0.5, linestyle=":", color="#5f6b76", label="guessing")
left.set_yticks(places, list(rows))
left.set(xlabel="AUC of the attack, with 95% interval")
left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, fontsize=8)
middle.barh(places, [row[4].share for row in rows.values()], color="#b9770e", alpha=0.5)
blind = [row[4].null_shares[row[4].best_null] for row in rows.values()]
middle.plot(blind, places, "k|", ms=14)
middle.set(xlabel="pixels read (|: blind)", xlim=(0, 1))
right.barh(places, [row[0] for row in rows.values()], color="#d5dde3")
right.set(xlabel="accuracy", xlim=(0, 1))
plt.show()
