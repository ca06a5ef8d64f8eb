"""Data files are read only if they are the published ones; errors say what to do."""

import hashlib
import urllib.request
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest

from skprivacy.datasets import adult, fetch_adult
from skprivacy.datasets import files as _files
from skprivacy.datasets.files import PublishedFile, data_folder
from skprivacy.preprocessing import SchemaTransformer

TRAIN = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, \
2174, 0, 40, United-States, <=50K
54, ?, 180211, Some-college, 10, Married-civ-spouse, ?, Husband, Asian-Pac-Islander, Male, \
0, 0, 60, South, >50K

"""
TEST = """\
|1x3 Cross validator
25, Private, 226802, 11th, 7, Never-married, Machine-op-inspct, Own-child, Black, Male, \
0, 0, 40, United-States, <=50K.
"""
real = pytest.mark.skipif(
    not (data_folder() / "adult" / "adult.data").is_file(),
    reason="the original files are not in SKPRIVACY_DATA",
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A data folder with two small files of Adult's form, published as far as tests go."""
    (tmp_path / "adult").mkdir()
    for part, text in {"train": TRAIN, "test": TEST}.items():
        file = adult._FILES[part]
        (tmp_path / "adult" / file.name).write_text(text)
        checksum = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        monkeypatch.setitem(adult._FILES, part, replace(file, checksum=checksum))
    return tmp_path


@pytest.fixture
def offline(monkeypatch):
    def refuse(*args, **kwargs):
        raise URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setattr(_files, "fetch_file", refuse)


@pytest.mark.parametrize("subset", ["train", "test", "all"])
def test_format(home, subset):
    bunch = fetch_adult(subset=subset, data_home=home, as_frame=True)
    assert len(bunch.data) == {"train": 2, "test": 1, "all": 3}[subset]
    assert list(bunch.data.columns) == bunch.feature_names == list(bunch.schema)
    assert set(bunch.target) <= {"<=50K", ">50K"}
    assert bunch.target.name == "income"
    assert list(bunch.frame.columns) == [*bunch.feature_names, "income"]
    assert list(bunch.classes) == ["<=50K", ">50K"]


def test_unknown_stays_unknown_and_becomes_zeros(home):
    bunch = fetch_adult(data_home=home)
    assert bunch.data[1, 1] == "?"
    transformer = SchemaTransformer(bunch.schema).fit(bunch.data)
    out = pd.DataFrame(
        transformer.transform(bunch.data), columns=transformer.get_feature_names_out()
    )
    assert out.shape == (2, 105)
    work = out.filter(like="workclass")
    assert work.shape[1] == 8
    assert work.sum(axis=1).tolist() == [1, 0]
    X, y = fetch_adult(data_home=home, return_X_y=True)
    assert X.shape == (2, 14)
    np.testing.assert_array_equal(y, ["<=50K", ">50K"])


def test_folder_argument_beats_environment_beats_home(home, monkeypatch, tmp_path):
    monkeypatch.setenv("SKPRIVACY_DATA", str(home))
    assert len(fetch_adult().data) == 2
    assert data_folder("other").name == "other"
    monkeypatch.delenv("SKPRIVACY_DATA")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert data_folder() == tmp_path / "me" / "skprivacy_data"


def test_offline_says_what_to_do(tmp_path, offline):
    with pytest.raises(OSError, match=r"adult\.data") as caught:
        fetch_adult(data_home=tmp_path)
    for word in ("adult.data", str(tmp_path / "adult"), "5b00264637db", "SKPRIVACY_DATA", "http"):
        assert word in str(caught.value)


def test_no_download_unless_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "fetch_file", lambda *a, **k: pytest.fail("downloaded"))
    with pytest.raises(OSError, match="download_if_missing"):
        fetch_adult(data_home=tmp_path, download_if_missing=False)
    assert not list(tmp_path.iterdir())


def test_unwritable_place_is_told(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be")
    with pytest.raises(OSError, match="downloading failed"):
        fetch_adult(data_home=blocked)


def test_another_file_of_that_name_is_refused(home):
    path = home / "adult" / "adult.data"
    path.write_text(TRAIN.replace("39", "93"))
    before = path.read_bytes()
    with pytest.raises(OSError, match=r"adult\.data is not the published"):
        fetch_adult(data_home=home)
    assert path.read_bytes() == before


@pytest.fixture
def server(tmp_path):
    """A web server of this machine over a folder; returns (folder, address)."""
    folder = tmp_path / "published"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()
        thread.join()


@pytest.mark.parametrize("spoilt", [False, True])
def test_a_download_lands_in_the_folder_and_is_checked(server, spoilt, tmp_path):
    folder, address = server
    (folder / "thing").write_bytes(b"<html>moved</html>" if spoilt else b"hello\n")
    checksum = "git:ce013625030ba8dba906f756967f9e9ca394464a"
    file = PublishedFile("x", "thing", checksum, address + "thing")
    if spoilt:
        with pytest.raises(OSError, match="not the published"):
            file.path(tmp_path / "new")
        return
    path = file.path(tmp_path / "new")
    assert path == tmp_path / "new" / "x" / "thing"
    assert path.read_bytes() == b"hello\n"
    (folder / "thing").unlink()
    assert file.path(tmp_path / "new") == path  # and is not asked for again


def test_what_is_no_longer_published_is_told_and_leaves_nothing(server, tmp_path):
    _, address = server
    file = PublishedFile("x", "gone", "git:00", address + "gone")
    with pytest.raises(OSError, match=r"downloading failed \(HTTP Error 404"):
        file.path(tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())


def test_wrong_subset():
    with pytest.raises(ValueError, match="subset='both' must be one of"):
        fetch_adult(subset="both")


@real
def test_original_files():
    train, test = (
        fetch_adult(subset=s, as_frame=True, download_if_missing=False) for s in ("train", "test")
    )
    assert train.data.shape == (32_561, 14)
    assert test.data.shape == (16_281, 14)
    assert (train.target == ">50K").sum() == 7_841
    assert (test.target == ">50K").sum() == 3_846
