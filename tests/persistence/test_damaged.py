"""Files that were damaged, or made up: refused in words that name the file, and nothing runs."""

from __future__ import annotations

import copy
import json
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from skprivacy import (
    DPSGDRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    LocalPerturbation,
    MarginalSynthesizer,
    ObjectivePerturbationClassifier,
    Schema,
    SchemaTransformer,
    load_model,
    save_model,
)
from skprivacy.additive_model import PrivateAdditiveClassifier
from skprivacy.fine_tuning import ALMFineTuner, NetworkHead
from skprivacy.model_selection import PrivateSearchCV
from skprivacy.neural_network import ScatteringTransformer
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, PrivateStandardScaler
from skprivacy.synthesis import DPGANSynthesizer, Grid, SyntheticDataClassifier

from ..certificates.test_certificates import changed_at, leaves

RNG = np.random.RandomState(0)
X = RNG.uniform(-1, 1, size=(40, 3))
Y = (X[:, 0] > 0).astype(int)
FRAME = pd.DataFrame({"age": RNG.uniform(0, 90, 40), "sex": np.where(Y, "f", "m")})
SCHEMA = Schema(
    {"age": BoundedColumn(0, 100, "log"), "sex": CategoricalColumn(["f", "m"])}, target_column="ill"
)
PLACES = {name: BoundedColumn(-1, 1) for name in "ab"}
COARSE = dict.fromkeys(PLACES, Grid(cells=3))
MODELS = {
    "pipeline": (
        lambda: make_pipeline(
            SchemaTransformer(SCHEMA).set_output(transform="pandas"),
            PrivateStandardScaler(epsilon=0.5, bounds=(-1, 1)),
            FunctionalMechanismClassifier(bounds=(-3, 3), classes=["no", "yes"]),
        ).fit(FRAME, np.where(Y, "yes", "no")),
        FRAME,
    ),
    "regressor": (
        lambda: FunctionalMechanismRegressor(
            epsilon=np.inf, bounds=(-1, 1), target_bounds=(0, 1)
        ).fit(X, Y),
        X,
    ),
    "local": (lambda: LocalPerturbation(SCHEMA, perturb="fit").fit(FRAME), FRAME),
    "images": (
        lambda: ScatteringTransformer((12, 12)).fit(RNG.uniform(size=(4, 144))),
        RNG.uniform(size=(4, 144)),
    ),
    "synthesizer": (
        lambda: MarginalSynthesizer(
            schema=SCHEMA,
            delta=1e-3,
            label="sex",
            columns_with_missing=["age"],
            grids={"age": Grid(cells=5)},
            workload={("age", "sex"): 1.0},
        ).fit(FRAME),
        FRAME,
    ),
    "generator": (
        lambda: DPGANSynthesizer(
            schema=SCHEMA,
            delta=1e-3,
            label="sex",
            grids={"age": Grid(cells=5)},
            epochs=1,
            discriminator_steps=1,
            hidden_layer_sizes=(2,),
            generator_layer_sizes=(2,),
            latent_size=2,
        ).fit(FRAME),
        FRAME,
    ),
    "additive": (
        lambda: PrivateAdditiveClassifier(
            delta=1e-3, n_rounds=1, schema=Schema(SCHEMA, classes=["no", "yes"])
        ).fit(FRAME.astype({"age": int}), np.where(Y, "yes", "no")),
        FRAME.astype({"age": int}),
    ),
    "trained on synthetic records": (
        lambda: SyntheticDataClassifier(
            make_pipeline(StandardScaler(), LogisticRegression()),
            MarginalSynthesizer(
                schema=Schema(PLACES, classes=["no", "yes"]),
                delta=1e-3,
                grids=COARSE,
                method="independent",
            ),
        ).fit(X[:, :2], np.where(Y, "yes", "no")),
        X[:, :2],
    ),
    "fine-tuned": (
        lambda: ALMFineTuner(
            PCA(2, whiten=True), "prototypes", classes=[0, 1], relation="zero_out"
        ).fit(X, Y, X_public=X + 0.1),
        X,
    ),
    "fine-tuned network": (
        lambda: ALMFineTuner(
            head=NetworkHead((2,), epochs=1), delta=1e-3, classes=[0, 1], relation="zero_out"
        ).fit(X, Y),
        X,
    ),
    "search": (
        lambda: PrivateSearchCV(
            make_pipeline(
                Normalizer(),
                ObjectivePerturbationClassifier(
                    bounds=(-1, 1), classes=[0, 1], relation="zero_out"
                ),
            ),
            {"objectiveperturbationclassifier__alpha": [0.1, 1.0]},
            epsilon=20.0,
            delta=1e-3,
            n_trials=2,
        ).fit(X, Y),
        X,
    ),
    "network": (
        lambda: DPSGDRegressor(
            target_bounds=(0, 1), delta=1e-3, epochs=1, hidden_layer_sizes=(2,)
        ).fit(X, Y),
        X,
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def saved(request, tmp_path_factory):
    """Return the file of a model, what is in it, and records that it takes."""
    make, rows = MODELS[request.param]
    path = tmp_path_factory.mktemp("saved") / "the-file"
    save_model(make(), path)
    return path, *contents(path), rows


def contents(path):
    with safe_open(path, framework="np") as file:
        header = json.loads(file.metadata()["skprivacy"])
        return header, {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118 (not a dict)


def written(path, header, arrays):
    save_file(arrays, path, metadata={"skprivacy": json.dumps(header)})
    return path


def answers(path, rows):
    """Return whether what is in the file answers; what does not is refused by the file's name."""
    try:
        model = load_model(path)
    except ValueError as error:
        return is_told(error)
    assert "predict" not in vars(model)
    with suppress(ValueError):  # columns of other names are refused
        if hasattr(model, "sample"):
            found = model.sample(len(rows))
        else:
            found = model.predict(rows) if hasattr(model, "predict") else model.transform(rows)
        assert len(found) == len(rows)
    return True


def is_told(error):
    assert "the-file" in str(error), error
    return False


WRONG = ["altered", 10**15, -1, 0.5, None, True, [], {}, [10**9, 10**9], {"float": "inf"}]


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_whatever_the_header_says_is_refused_or_makes_a_model(saved, tmp_path):
    """Every field is replaced by values of every type; what is loaded still answers."""
    _, header, arrays, rows = saved
    paths = [path for path in leaves(header) if path[0] != "versions"]
    refused = 0
    for path in paths:
        for wrong in WRONG:
            forged = changed_at(header, path, lambda _, wrong=wrong: wrong)
            if forged == header:
                continue
            refused += not answers(written(tmp_path / "the-file", forged, arrays), rows)
    assert refused > 2 * len(paths)


@pytest.mark.everyday(2)
@pytest.mark.heavy
def test_a_part_that_is_missing_or_added_is_noticed(saved, tmp_path):
    _, header, arrays, rows = saved
    inner = {path[:-1] for path in leaves(header) if isinstance(path[-1], str)}
    for path in inner - {("versions",)}:
        node = header
        for key in path:
            node = node[key]
        for name in list(node):
            forged = copy.deepcopy(header)
            target = forged
            for key in path:
                target = target[key]
            del target[name]
            answers(written(tmp_path / "the-file", forged, arrays), rows)


@pytest.mark.parametrize("part", ["whole", "step"])
def test_a_guarantee_that_was_altered_is_refused(part, tmp_path):
    """The whole must be what the steps make; a single step is vouched for by a certificate."""
    save_model(MODELS["pipeline"][0](), tmp_path / "the-file")
    header, arrays = contents(tmp_path / "the-file")
    top = ("privacy",) if part == "whole" else ("model", "steps", 1, 1, "privacy")
    for path in leaves(header):
        if path[: len(top)] == top and "assumptions" not in path:
            with pytest.raises(ValueError, match="the-file"):
                load_model(written(tmp_path / "the-file", changed_at(header, path), arrays))


def test_a_file_that_was_cut_off_is_refused(saved, tmp_path):
    whole = saved[0].read_bytes()
    for size in {0, 1, 7, 8, 9, *range(10, len(whole), max(1, len(whole) // 40)), len(whole) - 1}:
        (tmp_path / "the-file").write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"the-file.*(damaged|not a model)"):
            load_model(tmp_path / "the-file")


def test_bytes_that_were_changed_are_refused_or_make_a_model(saved, tmp_path):
    whole, rows, random = saved[0].read_bytes(), saved[3], np.random.RandomState(1)
    for _ in range(40):
        spoilt = bytearray(whole)
        for at in random.randint(0, len(whole), size=3):
            spoilt[at] = random.randint(256)
        (tmp_path / "the-file").write_bytes(bytes(spoilt))
        answers(tmp_path / "the-file", rows)


ARRAYS = {
    "missing": lambda arrays, name: arrays.pop(name),
    "another shape": lambda arrays, name: arrays.update({name: arrays[name][..., None]}),
    "enormous": lambda arrays, name: arrays.update({name: np.zeros((1000, 1000))}),
    "no number": lambda arrays, name: arrays.update({name: arrays[name] * np.nan}),
    "infinite": lambda arrays, name: arrays.update({name: arrays[name] + np.inf}),
    "another type": lambda arrays, name: arrays.update({name: arrays[name].astype(np.int32)}),
    "one more": lambda arrays, name: arrays.update({"predict": np.zeros(3)}),
}


@pytest.mark.parametrize("change", ARRAYS)
def test_arrays_that_were_changed_are_refused(change, tmp_path):
    save_model(MODELS["pipeline"][0](), tmp_path / "the-file")
    header, arrays = contents(tmp_path / "the-file")
    assert len(arrays) == 9
    for name in arrays:
        forged = dict(arrays)
        ARRAYS[change](forged, name)
        with pytest.raises(ValueError, match="the-file"):
            load_model(written(tmp_path / "the-file", header, forged))


def _model(**changes):
    return lambda header: header | {"model": header["model"] | changes}


def _params(**changes):
    return lambda header: _model(params=header["model"]["params"] | changes)(header)


HEADERS = {
    **{
        kind: (_model(kind=kind), "not a model of this version")
        for kind in ("Own", "os.system", "Pipeline.__init__", "ColumnTransformer")
    },
    "newer": (lambda header: header | {"format": 4}, r"the-file.*newer version.*Upgrade"),
    "a larger epsilon": (_params(epsilon=100.0), "something else than the guarantee says"),
    "an unknown parameter": (_params(secret=1), r"\['secret'\] are unknown"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_were_changed_are_refused(name, tmp_path):
    """No class beyond the table is looked up, and no noise is smaller than stated."""
    change, words = HEADERS[name]
    save_model(MODELS["local"][0](), tmp_path / "the-file")
    header, arrays = contents(tmp_path / "the-file")
    with pytest.raises(ValueError, match=words):
        load_model(written(tmp_path / "the-file", change(header), arrays))


def test_a_file_that_is_not_there_is_not_damaged(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "none")
