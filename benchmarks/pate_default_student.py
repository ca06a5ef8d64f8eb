"""Which student tells few noisy labels best on tables: the graph, logistic regression, the choice.

``python benchmarks/pate_default_student.py`` prints the table of doc/pate.rst: accuracy on
records that are not public, means of four draws, with 1,000 public records.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.preprocessing import StandardScaler

from skprivacy.ensemble.student_classifier import choose_queries
from skprivacy.ensemble.students import default_students, fit_student, select_student

N_PUBLIC = 1000
N_DRAWS = 4


def mixed(random):
    """Return six numbers and four categories as indicators, with a logistic truth."""
    numbers = random.normal(size=(4200, 6))
    log_odds = numbers @ [1.0, 0.8, -0.6, 0.4, 0.0, 0.0]
    columns = [numbers]
    for n_values in (3, 5, 8, 2):
        value = random.integers(n_values, size=len(numbers))
        log_odds += random.normal(size=n_values)[value]
        columns.append(np.eye(n_values)[value])
    y = random.random(len(numbers)) < 1 / (1 + np.exp(-1.5 * log_odds))
    return np.hstack(columns), y.astype(np.int64)


def cancer(random):
    """Return 2,000 records of each class, between two real ones and blurred."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    found = []
    for own in (X[y == 0], X[y == 1]):
        first, second = own[random.integers(len(own), size=(2, 2000))]
        share = random.random((2000, 1)) / 2
        noise = 0.3 * random.normal(size=first.shape)
        found.append(first * (1 - share) + second * share + noise)
    return np.concatenate(found), np.repeat([0, 1], 2000)


def made(**params):
    """Return what draws a table by scikit-learn's generator."""
    return lambda random: make_classification(4200, random_state=1, **params)


TABLES = {
    "logistic truth, 6 numbers and 4 categories": mixed,
    "breast cancer, blurred copies": cancer,
    "make_classification, 20 columns": made(n_features=20),
    "40 columns, 8 informative, 4 classes": made(n_features=40, n_informative=8, n_classes=4),
    "100 columns, 20 informative": made(n_features=100, n_informative=20),
    "digits": lambda random: load_digits(return_X_y=True),
}


def accuracies(X, y, n_labels, right, random):
    """Return the accuracy of both students and of the one that is chosen."""
    order = random.permutation(len(X))
    public, others = order[:N_PUBLIC], order[N_PUBLIC:]
    truth, n_classes = y[public], y.max() + 1
    asked = choose_queries(X[public], n_labels, np.random.RandomState(random.integers(1 << 31)))
    wrong = (truth[asked] + random.integers(1, n_classes, len(asked))) % n_classes
    labels = np.full(N_PUBLIC, -1)
    labels[asked] = np.where(random.random(len(asked)) < right, truth[asked], wrong)
    students = [*default_students(X[public]), select_student(X[public], labels)]
    return [fit_student(s, X[public], labels).score(X[others], y[others]) for s in students]


def main():
    """Print a line for each table and number of labels."""
    random = np.random.default_rng(0)
    for name, drawn in TABLES.items():
        X, y = drawn(random)
        for n_labels, right in ((50, 0.9), (100, 0.85)):
            found = [accuracies(X, y, n_labels, right, random) for _ in range(N_DRAWS)]
            graph, linear, chosen = np.mean(found, axis=0)
            print(f"{name:45}{n_labels:4}  {graph:.3f}, {linear:.3f}, {chosen:.3f}", flush=True)


if __name__ == "__main__":
    main()
