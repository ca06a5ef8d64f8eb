"""Parquet files as arrays on disk."""

import gc
import os
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest

from skprivacy.datasets import open_parquet
from skprivacy.neural_network import DPSGDClassifier
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, SchemaTransformer


@pytest.fixture
def frame():
    pytest.importorskip("pyarrow", reason="open_parquet needs pyarrow, an extra")
    rng = np.random.RandomState(0)
    return pd.DataFrame(
        {
            "a": rng.normal(size=50_000),
            "b": rng.randint(0, 9, size=50_000),
            "kind": np.array(["x", "y"])[rng.randint(0, 2, size=50_000)],
            "label": rng.randint(0, 2, size=50_000),
            "other": rng.randint(0, 2, size=50_000),
        }
    )


def test_numbers_come_back_from_disk(frame, tmp_path):
    frame.loc[7, "a"] = np.nan
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=7000)
    found = open_parquet(tmp_path / "t.parquet", target_column="label", columns=["b", "a"])
    assert isinstance(found.data, np.memmap)
    assert found.feature_names == ["b", "a"]
    assert np.array_equal(found.data, frame[["b", "a"]].astype(np.float32), equal_nan=True)
    assert np.array_equal(found.target, frame["label"])
    assert not found.data.flags.writeable


@pytest.mark.heavy
def test_several_files_and_labels(frame, tmp_path):
    frame[:30_000].to_parquet(tmp_path / "1")
    frame[30_000:].to_parquet(tmp_path / "2")
    X, y = open_parquet(
        [tmp_path / "1", tmp_path / "2"],
        target_column=["label", "other"],
        columns=["a"],
        return_X_y=True,
    )
    assert np.array_equal(X[:, 0], frame["a"].astype(np.float32))
    assert np.array_equal(y, frame[["label", "other"]])
    with pytest.warns(UserWarning, match="no privacy"):
        model = DPSGDClassifier(epochs=1, delta=1e-6, noise_seed=1, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="no privacy"):
        same = DPSGDClassifier(epochs=1, delta=1e-6, noise_seed=1, random_state=0).fit(
            np.array(X), y
        )
    assert np.array_equal(model.predict_proba(X), same.predict_proba(X))


def test_a_schema_makes_numbers_of_words(frame, tmp_path):
    frame.to_parquet(tmp_path / "t")
    schema = Schema({"a": BoundedColumn(-3, 3), "kind": CategoricalColumn(["x", "y"])})
    transformer = SchemaTransformer(schema).fit(frame[["a", "kind"]][:1])
    found = open_parquet(
        str(tmp_path / "t"), target_column="label", columns=["a", "kind"], transformer=transformer
    )
    expected = transformer.transform(frame[["a", "kind"]])
    assert np.array_equal(found.data, np.asarray(expected, dtype=np.float32))
    assert found.feature_names == list(transformer.get_feature_names_out())


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform == "win32", reason="files in use have a name on Windows")
def test_the_temporary_file_has_no_name_and_goes_with_the_array(frame, tmp_path):
    frame.to_parquet(tmp_path / "t")
    folder = tmp_path / "cache"
    folder.mkdir()
    found = open_parquet(tmp_path / "t", target_column="label", columns=["a"], directory=folder)
    part = found.data[10:20]
    assert os.listdir(folder) == []
    assert _deleted_files(folder) == 1
    del found
    gc.collect()
    assert np.array_equal(part[:, 0], frame["a"][10:20].astype(np.float32))
    del part
    gc.collect()
    assert _deleted_files(folder) == 0


def _deleted_files(folder) -> int:
    """Return how many files without a name in ``folder`` this process has mapped."""
    with open("/proc/self/maps") as maps:
        return sum(str(folder) in line and "(deleted)" in line for line in maps)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"columns": ["a", "no"]}, r"\['no'\] are not in the file"),
        ({"target_column": "no"}, r"\['no'\] are not in the file"),
        ({"columns": ["a", "label"]}, "also holds the target"),
        ({}, r"\['kind'\] are not numeric"),
        ({"columns": []}, "0 features"),
    ],
)
def test_what_does_not_fit_is_refused(frame, params, match, tmp_path):
    frame.to_parquet(tmp_path / "t")
    with pytest.raises(ValueError, match=match):
        open_parquet(tmp_path / "t", **{"target_column": "label", **params})


def test_an_empty_table_is_refused(frame, tmp_path):
    frame[:0].to_parquet(tmp_path / "t")
    with pytest.raises(ValueError, match="0 rows"):
        open_parquet(tmp_path / "t", columns=["a"])


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "claims.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ValueError, match=r"claims\.parquet.*damaged"):
        open_parquet(tmp_path / "claims.parquet")


def test_without_pyarrow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"skprivacy\[parquet\]"):
        open_parquet("t.parquet")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux tells a peak by process")
def test_memory_is_that_of_some_rows(frame, tmp_path):
    """In a process of its own, a table of 240 MB adds less than 100 MB to what a small one takes.

    What getrusage tells begins with the peak of the process that started it, which hides all below.
    """
    rng = np.random.RandomState(0)
    long = pd.DataFrame(rng.normal(size=(3_000_000, 10)), columns=[f"c{i}" for i in range(10)])
    long.to_parquet(tmp_path / "large", row_group_size=len(long))
    long[:2000].to_parquet(tmp_path / "small")
    code = """
        import sys
        from skprivacy.datasets import open_parquet
        def peak():
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) // 1024 for line in status if "VmHWM" in line)
        open_parquet(sys.argv[1])
        before = peak()
        found = open_parquet(sys.argv[2])
        assert found.data.shape == (3_000_000, 10)
        print(peak() - before)
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), tmp_path / "small", tmp_path / "large"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < 100  # some 55, of which pages of ten columns are half
