"""Command lines that are almost right: answered, or refused with a line and without a trace."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skprivacy import cli
from skprivacy.accounting import PrivacyBudget

from . import oracle
from .oracle import few

pytestmark = pytest.mark.heavy

N = 24
LINEAR = "--model OutputPerturbationClassifier"
# What works, in a folder with all the files that it names.
LINES = [
    f"train table.csv --schema schema.json --epsilon 1 {LINEAR} --set alpha=1 --hold-out 0.25 "
    "--save saved.safetensors --budget ledger --new-scope --scope part",
    "train table.csv --schema schema.json --epsilon 1 --set epochs=1 --delta 1e-4 --budget ledger",
    "predict model.safetensors table.csv --out predictions.csv --sep comma --decimal .",
    "schema draft table.csv --target ill --out draft.json",
    "schema check schema.json table.csv --encoding utf-8",
    "key another.pem",
    "verify certificate model.safetensors --key key.pem.pub --schema schema.json",
    "audit-predictions scores.csv --epsilon 1 --delta 1e-6 --alpha 0.05 --csv audit.csv",
    "budget create new.ledger --epsilon 1 --delta 1e-6 --filter adaptive --records 100",
    "budget scope ledger part --epsilon 0.5 --delta 1e-7",
    "budget spend ledger --noise-multiplier 30 --sampling-rate 0.1 --steps 10 --source me",
    "budget what-if ledger --noise laplace --noise-multiplier 30 --scope /",
    "budget show ledger --csv ledger.csv --scope /",
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
    "audit.csv", "new.ledger", "ledger.csv",
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
