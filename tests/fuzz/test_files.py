"""Files, descriptions and command lines that are odd or damaged: refused without a trace."""

import contextlib
import io
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skprivacy import certificates, cli, config_context, datasets, get_config, preprocessing
from skprivacy.accounting import ComposedEvent, Event, LaplaceEvent, PrivacyBudget, PrivacyGuarantee
from skprivacy.attacks import AttackResult
from skprivacy.linear_model import AdaSSPRegressor
from skprivacy.persistence import load_model, save_model
from skprivacy.preprocessing import Schema

from . import oracle
from .arguments import ONE, PRIVATE, SCHEMA, SCORES, TABLE
from .entries import ENTRIES
from .oracle import Refused, attempt, few
from .values import drawn_arguments, odd_values

pytestmark = pytest.mark.heavy

N = 24

# ------------------------------------------------------------------------------- damaged files


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A model and a ledger as they were written, and a place to damage them."""
    folder = tmp_path_factory.mktemp("files")
    X = np.random.RandomState(0).uniform(size=(50, 2))
    model = AdaSSPRegressor(bounds=(0, 1), target_bounds=(0, 1)).fit(X, X[:, 0])
    save_model(model, folder / "model")
    budget = PrivacyBudget(1.0, path=folder / "ledger")
    for _ in range(3):
        budget.reserve(LaplaceEvent(10.0))
    return folder, {name: (folder / name).read_bytes() for name in ("model", "ledger")}


@st.composite
def damage(draw, length):
    """How bytes are damaged: cut off, overwritten or put in."""
    cut = draw(st.one_of(st.just(length), st.integers(0, length)))
    at = draw(st.integers(0, max(cut - 1, 0)))
    return cut, at, draw(st.binary(max_size=8)), draw(st.booleans())


def _damaged(content, how):
    cut, at, new, inserted = how
    return content[:at] + new + content[at + (0 if inserted else len(new)) : cut]


@given(data=st.data())
@few(40)
def test_damaged_models(whole, data):
    folder, contents = whole
    place = folder / "damaged-model"
    place.write_bytes(_damaged(contents["model"], data.draw(damage(len(contents["model"])))))
    attempt(lambda: load_model(place), {"path", "damaged-model", "file", "model"})


@given(data=st.data())
@few(25)
def test_damaged_ledgers(whole, data):
    """A ledger is the one that was written, or it is refused for reading and for charging."""
    folder, contents = whole
    place = folder / "damaged-ledger"
    place.write_bytes(_damaged(contents["ledger"], data.draw(damage(len(contents["ledger"])))))
    before = place.read_bytes()
    budget = attempt(lambda: PrivacyBudget.open(place), {"path", "ledger"})
    if isinstance(budget, Refused):
        assert place.read_bytes() == before
        return
    assert budget.spent() == pytest.approx(0.3)
    attempt(lambda: budget.reserve(LaplaceEvent(10.0)), {"ledger"})
    # A journal that stayed would be played back into the ledger that is next put there.
    assert list(folder.glob("damaged-ledger?*")) == []


@pytest.fixture(scope="module")
def issued(tmp_path_factory):
    """A model, a ledger, a key and a certificate of them."""
    rows = np.random.RandomState(0).uniform(size=(N, 3))
    folder = tmp_path_factory.mktemp("issued")
    budget = PrivacyBudget(10.0, 1e-4, path=folder / "ledger")
    model = AdaSSPRegressor(bounds=(0, 1), target_bounds=(0, 1), delta=1e-6, budget=budget).fit(
        rows, rows[:, 0]
    )
    save_model(model, folder / "model")
    certificates.create_key(folder / "key")
    certificates.issue_certificate(
        model, folder / "certificate", key=folder / "key", model_file=folder / "model"
    )
    return folder, model, budget


@given(data=st.data())
@few(10)
def test_certificates(issued, data):
    folder, model, budget = issued
    valid = {
        "model": model, "key": folder / "key", "model_file": folder / "model", "budget": budget,
        "report": None, "schema": None, "issuer": "", "password": None,
    }  # fmt: skip
    given_ = data.draw(drawn_arguments(valid))
    place = folder / "another"
    place.unlink(missing_ok=True)
    attempt(
        lambda: certificates.issue_certificate(path=place, **given_),
        given_,
        unchanged=lambda: sorted(folder.iterdir()),
    )


@given(data=st.data())
@few(10)
def test_altered_certificates(issued, data):
    """A certificate with a replaced part does not count as genuine, or is refused."""
    folder, *_ = issued
    content = json.loads((folder / "certificate").read_text())
    part = data.draw(st.sampled_from(sorted(content)))
    content[part] = data.draw(
        st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=5),
                  st.dictionaries(st.text(max_size=3), st.integers(), max_size=2))
    )  # fmt: skip
    assume(content != json.loads((folder / "certificate").read_text()))
    altered = folder / "altered"
    altered.write_text(json.dumps(content))
    found = attempt(
        lambda: certificates.verify_certificate(altered, key=folder / "key.pub"),
        {"path", "certificate", "altered", part},
    )
    assert isinstance(found, Refused) or not found.holds


@given(data=st.data())
@few(10)
def test_models_that_cannot_be_saved(data, tmp_path_factory):
    place = tmp_path_factory.mktemp("saved") / "model"
    model, path = data.draw(
        st.one_of(st.tuples(odd_values(), st.just(place)), st.tuples(st.just(PRIVATE), _no_path()))
    )
    attempt(lambda: save_model(model, path), {"model", "path"}, lambda: place.exists())
    attempt(lambda: load_model(path), {"path", "file"})


def _no_path():
    return odd_values().filter(lambda path: not isinstance(path, str | bytes))


@given(data=st.data())
@few(10)
def test_configurations(data):
    given_ = data.draw(drawn_arguments(get_config()))
    before = get_config()

    def within():
        with config_context(**given_):
            pass

    attempt(within, given_)
    assert get_config() == before


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "table.parquet"
    TABLE.to_parquet(path)
    return path


BUDGET = PrivacyBudget(1e6, 0.01)
# What takes files: arguments by the files that there are, and what a refusal may speak of besides.
TAKES_FILES = {
    partial(preprocessing.private_summary, budget=BUDGET): (
        lambda table, folder: {
            "path": table, "schema": SCHEMA, "marginals": [("job",)], "means": ["age"],
            "groups": None, "max_group_size": 1, "epsilon": 1.0, "delta": 1e-6,
            "relation": "add_remove", "noise_seed": None, "memory": "512MB", "directory": None,
        },
        {"column", "columns", "seed", "budget"},
    ),
    datasets.open_parquet: (
        lambda table, folder: {
            "path": table, "target_column": "ill", "columns": ["age"], "transformer": None,
            "directory": None, "return_X_y": False,
        },
        {"column"},
    ),
    certificates.verify_certificate: (
        lambda table, folder: {
            "path": folder / "certificate", "model_file": folder / "model",
            "key": folder / "key.pub", "schema": None,
        },
        {"certificate"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("call", TAKES_FILES, ids=["summary", "table", "certificate"])
@given(data=st.data())
@few(8)
def test_arguments_beside_files(call, file, issued, data):
    arguments, names = TAKES_FILES[call]
    given_ = data.draw(drawn_arguments(arguments(file, issued[0])))
    attempt(lambda: call(**given_), {*given_, *names}, lambda: len(BUDGET.entries()))


# -------------------------------------------------------------------------------- descriptions


def descriptions():
    """JSON that is almost the description of an event."""
    leaves = st.one_of(
        st.none(), st.booleans(), st.integers(-3, 10**20), st.floats(), st.text(max_size=5)
    )
    keys = st.sampled_from(
        ["type", "version", "event", "events", "count", "noise_multiplier", "sigma", "kind"]
    )
    tags = st.sampled_from(
        ["Gaussian", "RepeatedEvent", "ComposedEvent", "PoissonSampledEvent", "VoteBlockEvent"]
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(keys, inner, max_size=4),
            st.builds(lambda tag, rest: {**rest, "type": tag}, tags,
                      st.dictionaries(keys, inner, max_size=3)),
        ),
        max_leaves=8,
    )  # fmt: skip


@given(descriptions())
@few(60)
def test_descriptions_of_events(description):
    names = {*FIELDS, "type", "version", "fields", "match", "count"}
    attempt(lambda: Event.from_dict(description), names)


@given(st.one_of(descriptions(), odd_values()), st.data())
@few(40)
def test_descriptions_of_guarantees(event, data):
    known = PrivacyGuarantee(ComposedEvent((ONE, ONE)), 1e-6).to_dict()
    known[data.draw(st.sampled_from(sorted(known)))] = event
    names = {*known, *FIELDS, "type", "version", "match", "describe"}
    attempt(lambda: PrivacyGuarantee.from_dict(known), names)


# Words that refusals of events use.
FIELDS = {parameter for entry in ENTRIES for parameter in entry.valid}
RESULT = AttackResult(*SCORES, "made up")


@given(st.dictionaries(st.sampled_from(sorted(RESULT.to_dict())), odd_values(), max_size=3))
@few(20)
def test_descriptions_of_results(changes):
    state = {**RESULT.to_dict(), **changes}
    attempt(lambda: AttackResult.from_dict(state), {*state, "state"})


@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["columns", "type", "lower", "upper", "values", "version", "a"]),
            inner, max_size=4,
        ),
    ),
    max_leaves=8,
))  # fmt: skip
@few(40)
def test_descriptions_of_schemas(description):
    names = {"columns", "type", "lower", "upper", "values", "version", "schema", "Schema", "a"}
    attempt(lambda: Schema.from_dict(description), names)


# ------------------------------------------------------------------------------- command lines

LINEAR = "--model OutputPerturbationClassifier"
# Calls that work, in a folder with all the files that they name.
LINES = [
    f"train table.csv --schema schema.json --epsilon 1 {LINEAR} --set alpha=1 --hold-out 0.25 "
    "--save saved.safetensors --budget ledger --new-scope --scope part",
    "train table.csv --schema schema.json --epsilon 1 --set epochs=1 --delta 1e-4 --budget ledger",
    "predict model.safetensors table.csv --out predictions.csv --sep comma --decimal .",
    "schema draft table.csv --target ill --out draft.json",
    "schema check schema.json table.csv --encoding utf-8",
    "key another.pem",
    "verify certificate model.safetensors --key key.pem.pub --schema schema.json",
    "audit-predictions scores.csv --epsilon 1 --delta 1e-6 --alpha 0.05 --out audit.csv",
    "budget create new.ledger --epsilon 1 --delta 1e-6 --filter adaptive --records 100",
    "budget scope ledger part --epsilon 0.5 --delta 1e-7",
    "budget spend ledger --noise-multiplier 30 --sampling-rate 0.1 --steps 10 --source me",
    "budget what-if ledger --noise laplace --noise-multiplier 30 --scope /",
    "budget show ledger --scope /",
    "budget compare --noise-multiplier 3 --steps 10 --delta 1e-6 --relation add_remove",
    "datasets adult",
]
ODD = st.one_of(
    st.sampled_from(
        ["", "-1", "0", "nan", "inf", "1e-300", "1e300", "abc", "/", "a/b", "--", "-", "--epsilon",
         "--delta", "--help", "table.csv", "ledger", "schema.json", "no/such/file", ".", "\x1b[31m"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), max_size=5),
)  # fmt: skip
OUTPUTS = {
    "saved.safetensors", "predictions.csv", "draft.json", "another.pem", "another.pem.pub",
    "audit.csv", "new.ledger",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place, earlier = tmp_path_factory.mktemp("commands"), os.getcwd()
    os.chdir(place)
    age = np.arange(N) * 2
    table = pd.DataFrame({"age": age, "ill": np.where(age > N, "yes", "no")})
    table.to_csv("table.csv", index=False)
    column = {"type": "bounded", "lower": 0, "upper": 100}
    facts = {"columns": {"age": column}, "target": "ill", "classes": ["no", "yes"]}
    Path("schema.json").write_text(json.dumps(facts))
    share = np.linspace(0.1, 0.9, N)
    scores = pd.DataFrame({"no": share, "yes": 1 - share, "label": table["ill"]})
    scores.assign(member=np.arange(N) % 2).to_csv("scores.csv", index=False)
    PrivacyBudget(1e5, 0.1, "ledger")
    for line in (
        "key key.pem",
        f"train table.csv --schema schema.json --epsilon 1 {LINEAR} --budget ledger "
        "--save model.safetensors --certificate certificate --key key.pem",
    ):
        code, told = _run(line.split())
        assert code == 0, told
    yield place
    os.chdir(earlier)


@st.composite
def command_lines(draw):
    """Draw a command line of which a few words are replaced, repeated, left out or put in."""
    words = draw(st.sampled_from(LINES)).split()
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(1, len(words)))
        rest = words[at + draw(st.integers(0, 1)) :]
        words = [*words[:at], *draw(st.lists(ODD, max_size=1)), *rest]
    return words


@given(words=command_lines())
@few(30)
def test_commands(folder, words):
    before = _charges()
    code, told = _run(words)
    assert code in (0, 1, 2)
    assert "Traceback" not in told
    if code:
        assert told
        assert _charges() == before
    for name in set(os.listdir()) - INPUTS:
        assert code == 0 or name in OUTPUTS or name in words, f"a refusal has left {name!r}"
        Path(name).unlink() if Path(name).is_file() else None


INPUTS = {
    "table.csv", "schema.json", "scores.csv", "ledger", "key.pem", "key.pem.pub",
    "model.safetensors", "certificate",
}  # fmt: skip


def _charges() -> int:
    return len(PrivacyBudget.open("ledger").entries())


def _run(words: list[str]) -> tuple[int, str]:
    oracle.N_CALLS += 1
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told):
        return cli.main(words), told.getvalue()
