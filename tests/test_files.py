"""A path holds the whole new file or the previous one: no paid result is lost."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import stat
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from skprivacy import audit, issue_certificate, save_model, verify_certificate
from skprivacy._files import create_file, write_figure, write_file
from skprivacy.accounting import GaussianEvent, LaplaceEvent, PrivacyBudget
from skprivacy.attacks import LossThreshold, ShadowPool
from skprivacy.attacks import shadow_training as _pool_folder
from skprivacy.certificates import create_key, issuing
from skprivacy.cli.reports import write_table
from skprivacy.exceptions import PrivacyWarning
from skprivacy.linear_model import AdaSSPRegressor, OutputPerturbationClassifier
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.model_selection import sweep_store as _kept
from skprivacy.persistence import load_model
from skprivacy.preprocessing import BoundedColumn, Schema

from .cli.shell import refuse, run

pytestmark = pytest.mark.heavy

X = np.random.RandomState(0).uniform(size=(40, 2))
y = np.arange(40) % 2
MODEL = AdaSSPRegressor(bounds=(0, 1), target_bounds=(0, 1)).fit(X, X[:, 0])
PLAIN = LogisticRegression().fit(X, y)
WIDE = Schema({f"column {i}": BoundedColumn(0, 1) for i in range(100)})


@contextmanager
def full_disk(room=512):
    """Let no file grow beyond ``room`` bytes, as on a full disk."""
    earlier = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, earlier[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, earlier)


def certify(path):
    key, file = path.with_name("key"), path.with_name("model")
    issue_certificate(MODEL, path, key=key, model_file=file)


def report():
    return audit(PLAIN, X[:20], y[:20], X[20:], y[20:], attacks=[LossThreshold()])


def export(path):
    PrivacyBudget.open(path.with_name("ledger")).export(path)


WRITERS = {
    "model.safetensors": lambda path: save_model(MODEL, path),
    "certificate.json": certify,
    "schema.json": WIDE.to_json,
    "ledger.jsonl": export,
    "report.json": lambda path: report().to_json(path),
    "report.html": lambda path: report().to_html(path),
    "figure.png": lambda path: write_figure(path, Figure()),
}


@pytest.fixture
def prepared(tmp_path):
    """What else there must be, made while there is room for it."""
    save_model(MODEL, tmp_path / "model")
    create_key(tmp_path / "key")
    budget = PrivacyBudget(9.0, path=tmp_path / "ledger")
    for _ in range(3):
        budget.reserve(LaplaceEvent(10.0))
    return tmp_path


@pytest.mark.everyday(1)
@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX")
@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_costs_no_earlier_file_and_is_named(name, prepared):
    path = prepared / name
    path.write_text("worth keeping")
    before = sorted(prepared.iterdir())
    with full_disk(), pytest.raises(OSError, match="File too large") as refused:
        WRITERS[name](path)
    assert refused.value.filename == str(path)
    assert path.read_text() == "worth keeping"
    assert sorted(prepared.iterdir()) == before


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_an_interruption_costs_no_earlier_file(moment, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    save_model(MODEL, tmp_path / "model")
    monkeypatch.setattr(os, moment, interrupted)
    other = AdaSSPRegressor(bounds=(0, 1), target_bounds=(0, 1)).fit(X, X[:, 1])
    with pytest.raises(KeyboardInterrupt):
        save_model(other, tmp_path / "model")
    monkeypatch.undo()
    assert np.array_equal(load_model(tmp_path / "model").coef_, MODEL.coef_)
    assert os.listdir(tmp_path) == ["model"]


def test_text_that_is_no_utf_8_costs_no_earlier_file(tmp_path):
    (tmp_path / "a").write_text("worth keeping")
    with pytest.raises(ValueError, match="surrogates"):
        write_file(tmp_path / "a", "\ud800")
    assert (tmp_path / "a").read_text() == "worth keeping"


def test_permissions_stay(tmp_path):
    place = tmp_path / "place"
    place.write_text("old")
    place.chmod(0o640)
    write_file(place, "new")
    assert place.read_text() == "new"
    assert stat.S_IMODE(place.stat().st_mode) == 0o640
    write_file(place, "for its owner", 0o600)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


@pytest.mark.parametrize("target", ["somebody's file", "nothing"])
@pytest.mark.parametrize("name", list(WRITERS))
def test_no_writer_follows_a_link(name, target, prepared, tmp_path):
    place, link = tmp_path / "place", prepared / f"link{Path(name).suffix}"
    if target == "somebody's file":
        place.write_text("worth keeping")
    link.symlink_to(place)
    with pytest.raises(OSError, match="Symbolic links are never followed") as refused:
        WRITERS[name](link)
    link.unlink()
    assert refused.value.filename == str(link)
    assert place.exists() == (target == "somebody's file")
    assert not place.exists() or place.read_text() == "worth keeping"


@pytest.mark.parametrize("writable", [True, False])
def test_a_link_that_appears_during_writing_is_not_followed(writable, tmp_path, monkeypatch):
    """Without a writable folder the file is written in place, where the link is refused."""
    place, link = tmp_path / "place", tmp_path / "model"
    place.write_text("worth keeping")
    place.chmod(0o640)
    link.symlink_to(place)
    monkeypatch.setattr("skprivacy._files.output_path", Path)  # it looked before the link came
    monkeypatch.setattr("skprivacy._files._is_replaceable", lambda _: writable)
    if writable:
        write_file(link, "new")
        assert not link.is_symlink()
        assert link.read_text() == "new"
        assert not stat.S_IMODE(link.stat().st_mode) & 0o111
    else:
        with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
            write_file(link, "new")
    assert place.read_text() == "worth keeping"


def test_pipes_and_devices_are_written_to(tmp_path):
    """It is not replaced by one."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_file(tmp_path / "pipe", "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    with pytest.raises(IsADirectoryError) as refused:
        write_file(tmp_path, "")
    assert refused.value.filename == str(tmp_path)


def test_of_two_that_create_a_file_one_does(tmp_path):
    create_file(tmp_path / "a", "first", 0o600)
    with pytest.raises(FileExistsError) as refused:
        create_file(tmp_path / "a", "second")
    assert refused.value.filename == str(tmp_path / "a")
    assert (tmp_path / "a").read_text() == "first"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_is_created_where_there_are_no_links(tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    create_file(tmp_path / "a", "first", 0o600)
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "a", "second")
    assert (tmp_path / "a").read_text() == "first"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a"]


def test_half_a_pair_of_keys_is_none(tmp_path, monkeypatch):
    made = create_file

    def only_private(path, *args):
        if path.suffix == ".pub":
            raise OSError(28, "No space left on device", str(path))
        made(path, *args)

    monkeypatch.setattr("skprivacy.certificates.signing.create_file", only_private)
    with pytest.raises(OSError, match=r"key\.pub"):
        create_key(tmp_path / "key")
    monkeypatch.undo()
    create_key(tmp_path / "key")


def pool(folder, **given):
    return ShadowPool(GaussianNB(), n_shadows=4, path=folder, **given).fit(X, y)


def test_no_altered_model_of_a_pool_is_used(tmp_path):
    """A model of other halves, or a damaged one, would make every attack say that nothing leaks."""
    pool(tmp_path)
    one = tmp_path / "shadow_0001.joblib"
    content = one.read_bytes()
    for at in range(0, len(content), 29):
        one.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        with pytest.raises(ValueError, match=r"shadow_0001\.joblib.*delete it"):
            pool(tmp_path)
    for cut in (0, 10, len(content) - 1):
        one.write_bytes(content[:cut])
        with pytest.raises(ValueError, match=r"shadow_0001\.joblib.*delete it"):
            pool(tmp_path)
    one.unlink()
    pool(tmp_path)


def test_no_model_of_other_halves_is_used(tmp_path):
    pool(tmp_path / "a", random_state=0)
    pool(tmp_path / "b", random_state=1)
    one, two = (tmp_path / "a" / f"shadow_000{i}.joblib" for i in (1, 2))
    for other in (two, tmp_path / "b" / one.name):
        content = one.read_bytes()
        shutil.copy(other, one)
        with pytest.raises(ValueError, match="not a model of this pool"):
            pool(tmp_path / "a")
        one.write_bytes(content)
    plan = json.loads((tmp_path / "a" / "pool.json").read_text())
    for seed in (plan["seed"] ^ 1, -plan["seed"]):
        (tmp_path / "a" / "pool.json").write_text(json.dumps(plan | {"seed": seed}))
        with pytest.raises(ValueError, match=r"not a model of this pool|damaged"):
            pool(tmp_path / "a")


def test_pools_that_begin_at_once_have_the_same_halves(tmp_path, monkeypatch):
    def later(plan, content, mode):
        another = json.dumps(json.loads(content) | {"seed": 7})
        create_file(plan, another, mode)  # before ours
        create_file(plan, content, mode)

    monkeypatch.setattr(_pool_folder, "create_file", later)
    first = pool(tmp_path, random_state=0)
    monkeypatch.undo()
    again = pool(tmp_path, random_state=1)
    assert (first.masks_ == again.masks_).all()


def swept(folder):
    model = OutputPerturbationClassifier(bounds=(0, 1), classes=[0, 1])
    budget = PrivacyBudget(9.0, path=folder.with_name("ledger"))
    model.set_params(budget=budget)
    return PrivacySweepCV(model, epsilons=[1.0], cv=2, baseline=None, refit=1.0, path=folder).fit(
        X, y
    )


def test_no_altered_result_of_a_sweep_is_used(tmp_path):
    """Another noise in a claim would be another epsilon."""
    swept(tmp_path / "kept")
    one, two = sorted((tmp_path / "kept").glob("fit_*.json"))
    content, known = one.read_bytes(), _kept.load_result(one)
    for at in range(0, len(content), 5):
        one.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        try:
            assert _kept.load_result(one) == known  # such as 1E-05 for 1e-05
        except ValueError as error:
            assert re.search(rf"{one.name} is damaged .* delete it", str(error))  # noqa: PT017
    for damaged in (two.read_bytes(), re.sub(rb'_score": 0', b'_score": 1', content)):
        one.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"{one.name} is damaged"):
            swept(tmp_path / "kept")


@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX")
def test_a_sweep_is_not_lost_to_a_folder_that_takes_no_result(tmp_path, monkeypatch):
    write = _kept.write_file

    def refused(path, *args):
        with full_disk(8):
            write(path, *args)

    monkeypatch.setattr(_kept, "write_file", refused)
    with pytest.warns(PrivacyWarning, match=r"could not be kept: .*fit_.*\.json"):
        done = swept(tmp_path / "kept")
    assert done.predict(X).shape == (40,)
    assert len(done.cv_results_["mean_test_score"]) == 1
    assert len(PrivacyBudget.open(tmp_path / "ledger").entries()) == 3


def test_a_certificate_holds_though_others_charge_meanwhile(tmp_path, monkeypatch):
    budget = PrivacyBudget(9.0, 1e-4, path=tmp_path / "ledger")
    model = AdaSSPRegressor(bounds=(0, 1), target_bounds=(0, 1), budget=budget).fit(X, X[:, 0])
    save_model(model, tmp_path / "model")
    create_key(tmp_path / "key")
    lines = issuing.export_lines

    def charged_before(asked):
        budget.reserve(GaussianEvent(50.0))
        found = lines(asked)
        budget.reserve(GaussianEvent(50.0))
        return found

    monkeypatch.setattr(issuing, "export_lines", charged_before)
    given = {"key": tmp_path / "key", "model_file": tmp_path / "model"}
    issue_certificate(model, tmp_path / "certificate", budget=budget, **given)
    found = verify_certificate(tmp_path / "certificate", tmp_path / "model")
    assert found.state == "unknown key"


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{age},{'yes' if age > 40 else 'no'}" for age in range(20, 60))
    (tmp_path / "table.csv").write_text(f"age,ill\n{rows}\n")
    facts = {"columns": {"age": {"type": "bounded", "lower": 0, "upper": 100}}, "target": "ill"}
    (tmp_path / "schema.json").write_text(json.dumps(facts | {"classes": ["no", "yes"]}))
    PrivacyBudget(9.0, path=tmp_path / "ledger")
    return tmp_path


TRAIN = (
    "train table.csv --schema schema.json --model OutputPerturbationClassifier --budget ledger "
    "--save model.safetensors"
)


def test_a_place_that_takes_no_file_is_refused_before_anything_is_charged(
    table, monkeypatch, capsys
):
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, how: path != table and access(path, how))
    refuse(TRAIN, capsys, "model.safetensors cannot be written to")
    assert PrivacyBudget.open("ledger").entries().empty


def test_a_model_that_was_paid_for_is_kept_though_its_disk_is_full(table, monkeypatch, capsys):
    write = write_file

    def refused(path, *args):
        if path == "model.safetensors":
            raise OSError(28, "No space left on device", path)
        write(path, *args)

    monkeypatch.setattr("skprivacy.persistence.file_format.write_file", refused)
    code, _, told = run(TRAIN, capsys)
    assert code == 2
    assert "No space left on device: 'model.safetensors'. The trained model is in " in told
    elsewhere = told.split("The trained model is in ")[1].split(": move it")[0]
    assert load_model(elsewhere)[-1].privacy_.epsilon() == pytest.approx(1)
    shutil.rmtree(os.path.dirname(elsewhere))


def test_a_table_is_for_whom_other_new_files_are(tmp_path):
    before = os.umask(0o027)
    try:
        write_table(str(tmp_path / "a.csv"), pd.DataFrame({"a": [1]}))
        write_table(str(tmp_path / "b.csv"), pd.DataFrame({"a": [1]}), mode=0o600)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a.csv", "b.csv")]
    assert modes == [0o640, 0o600]


def test_no_cell_of_a_table_is_a_formula(tmp_path):
    cells = ["=1+1", "+2 years", "-x", "@a", "plain", "-1.5", "+2"]
    write_table(str(tmp_path / "a.csv"), pd.DataFrame({"a": cells}))
    shown = (tmp_path / "a.csv").read_text().split("\n")[1:-1]
    assert shown == ["'=1+1", "'+2 years", "'-x", "'@a", "plain", "-1.5", "+2"]
