"""Untrusted files: one reader refuses repeated keys, devices, pipes and large files."""

from __future__ import annotations

import json
import os
import re
import struct
import time
from pathlib import Path

import numpy as np
import pytest

import skprivacy
from skprivacy import (
    PrivacyBudget,
    Schema,
    issue_certificate,
    load_model,
    save_model,
    verify_certificate,
)
from skprivacy._files import MAX_TEXT_BYTES, open_file, parse_json, read_file
from skprivacy.accounting import ApproxDPEvent, Event, LaplaceEvent, LedgerError
from skprivacy.accounting.budget.ledger import _digest
from skprivacy.accounting.budget.snapshot import export_lines, open_exported_ledger
from skprivacy.certificates import create_key
from skprivacy.cli import main
from skprivacy.linear_model import AdaSSPRegressor
from skprivacy.preprocessing import BoundedColumn

X = np.random.RandomState(0).uniform(size=(40, 2))
MODEL = AdaSSPRegressor(bounds=(0, 1), target_bounds=(0, 1)).fit(X, X[:, 0])
ROOT = Path(skprivacy.__file__).parent


@pytest.fixture
def issued(tmp_path):
    save_model(MODEL, tmp_path / "m.safetensors")
    create_key(tmp_path / "key")
    Schema({"a": BoundedColumn(0, 1)}).to_json(tmp_path / "schema.json")
    issue_certificate(
        MODEL, tmp_path / "c.json", key=tmp_path / "key", model_file=tmp_path / "m.safetensors"
    )
    return tmp_path


def repeated(text, key, value="0"):
    """Return JSON in which a key occurs twice, first with another value."""
    return text.replace(f'"{key}"', f'"{key}": {value}, "{key}"', 1)


def test_nothing_else_parses_json():
    """json.loads takes the last of two entries, and another reader may take the first."""
    calls = re.compile(r"\bjson\.(load|loads|JSONDecoder)\b|from json import (?!JSONDecodeError)")
    found = [f.name for f in ROOT.rglob("*.py") if calls.search(f.read_text(encoding="utf-8"))]
    assert found == ["_files.py"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "a": 1}', "'a' occurs more than once"),
        ('[{"b": {"a": 1, "c": 2, "a": 3}}]', "'a' occurs more than once"),
        ('{"a": NaN}', "NaN is not JSON"),
        ("-Infinity", "-Infinity is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("{", "Expecting property name"),
    ],
)
def test_other_text_than_plain_json_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        parse_json(text)


def test_many_repeated_keys_are_refused_quickly():
    text = "{" + ", ".join(f'"{i}": 0' for i in range(30_000)) + ', "0": 0}'
    start = time.process_time()
    with pytest.raises(ValueError, match="'0' occurs more than once"):
        parse_json(text)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("key", ["claim", "epsilon", "event", "signature", "digests", "sha256"])
def test_a_certificate_with_a_repeated_key_is_refused(key, issued):
    path = issued / "c.json"
    path.write_text(repeated(path.read_text(), key, '{"epsilon": 0.01}'))
    found = verify_certificate(path, key=issued / "key.pub")
    assert found.state == "refused"
    assert repr(found).startswith("REFUSED: the file: this is not a certificate: the key")


@pytest.mark.parametrize("key", ["epsilon", "model", "__metadata__", "coef"])
def test_a_model_with_a_repeated_key_is_refused(key, issued):
    """In the header of safetensors, and in that of the library inside it."""
    path = issued / "m.safetensors"
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = content[8 : 8 + length].decode()
    outer = json.loads(header)
    if key in outer:
        changed = repeated(header, key, json.dumps(outer[key]))
    else:
        key = key if f'"{key}"' in outer["__metadata__"]["skprivacy"] else "format"
        outer["__metadata__"]["skprivacy"] = repeated(outer["__metadata__"]["skprivacy"], key)
        changed = json.dumps(outer)
    path.write_bytes(struct.pack("<Q", len(changed)) + changed.encode() + content[8 + length :])
    with pytest.raises(ValueError, match=f"{key!r} occurs more than once"):
        load_model(path)


def test_a_ledger_with_a_repeated_key_is_refused(tmp_path):
    """With digests that fit: its owner wrote it."""
    budget = PrivacyBudget(1.0, path=tmp_path / "ledger")
    budget.reserve(ApproxDPEvent(0.5))
    scope, lines = export_lines(budget)
    for line in lines:
        assert open_exported_ledger("a copy", scope, lines).spent() == pytest.approx(0.5)
        changed, previous = [], ""
        for other in lines:
            body = repeated(other[6], "epsilon", "0.01") if other is line else other[6]
            values = [*other[:6], body]
            previous = _digest(previous, *values)
            changed.append([*values, previous])
        if changed == lines:
            continue  # a line without epsilon
        with pytest.raises((LedgerError, ValueError)):
            open_exported_ledger("a copy", scope, changed).verify()


def test_an_event_with_a_repeated_key_is_refused(tmp_path, capsys):
    PrivacyBudget(1.0, path=tmp_path / "ledger")
    event = repeated(json.dumps(LaplaceEvent(2.0).to_dict()), "noise_multiplier", "1e9")
    assert isinstance(Event.from_dict(json.loads(event)), LaplaceEvent)
    assert main(["budget", "spend", str(tmp_path / "ledger"), "--event", event]) == 2
    assert "'noise_multiplier' occurs more than once" in capsys.readouterr().err


# ---- devices, pipes and sizes


def special(kind, folder):
    if kind != "pipe":
        return Path(kind)
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


READERS = {
    "load_model": load_model,
    "Schema.from_json": Schema.from_json,
    "read_file": read_file,
    "certificate": lambda path: _refused(verify_certificate(path)),
    "model of a certificate": lambda path: _refused(
        verify_certificate(path.parent / "c.json", path)
        if path.name == "pipe"
        else verify_certificate(Path("c.json"), path)
    ),
    "key": lambda path: verify_certificate("c.json", key=path),
}


def _refused(found):
    assert found.state == "refused"
    raise ValueError(repr(found))


@pytest.mark.skipif(os.name != "posix", reason="devices are POSIX")
@pytest.mark.parametrize("kind", ["/dev/zero", "/dev/urandom", "pipe"])
@pytest.mark.parametrize("name", list(READERS))
def test_a_device_or_a_pipe_is_refused(name, kind, issued, monkeypatch):
    """Without waiting for the writer of a pipe, and without reading a device for ever."""
    monkeypatch.chdir(issued)
    start = time.process_time()
    with pytest.raises(ValueError, match="a device, a pipe or a socket"):
        READERS[name](special(kind, issued))
    assert time.process_time() - start < 1


@pytest.mark.parametrize("name", list(READERS))
def test_a_file_that_is_too_large_is_refused(name, issued, monkeypatch):
    """Such as a sparse one of a terabyte, which takes no room."""
    monkeypatch.chdir(issued)
    with open(issued / "huge", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match=r"is larger than [\d,]+ bytes"):
        READERS[name](issued / "huge")


def test_a_file_that_grows_is_read_to_the_limit(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"0" * 11)
    monkeypatch.setattr("skprivacy._files._check_status", lambda *_: None)
    with pytest.raises(ValueError, match="larger than 10 bytes"):
        read_file(tmp_path / "a", 10)
    assert read_file(tmp_path / "a", 11) == b"0" * 11


def test_missing_files_and_folders_are_reported(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "none", MAX_TEXT_BYTES)
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        open_file(tmp_path, MAX_TEXT_BYTES)
