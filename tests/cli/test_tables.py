"""Tables as people have them: any separator, encoding, decimal mark and kind of file."""

import argparse
import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skprivacy.cli import tables as _tables
from skprivacy.cli.console import UserError

from .shell import refuse, succeed

TABLE = pd.DataFrame(
    {
        "age": [31, 64, 18, 90],
        "weight": [70.5, 81.25, 0.5, 99.0],
        "ward": ["Pädiatrie", 'said "hm"', "A; B, C", "x|y"],
    }
)


def options(**given):
    return argparse.Namespace(**{"sep": None, "encoding": None, "decimal": None, **given})


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_the_written_dialect_is_detected(sep, encoding, decimal, tmp_path, capsys):
    path = tmp_path / "t.csv"
    TABLE.to_csv(path, sep=sep, encoding=encoding, decimal=decimal, index=False)
    if (sep, decimal) == (",", ","):
        read = _tables.read_table(path, options(decimal=","))  # cannot be found out without doubt
    else:
        read = _tables.read_table(path, options())
    pd.testing.assert_frame_equal(read, TABLE)
    said = capsys.readouterr().err
    assert ("--sep" in said) == (sep != ",")
    assert ("--decimal" in said) == (decimal == "," and sep != ",")
    assert ("--encoding" in said) == (encoding in ("cp1252", "utf-16"))
    assert len(said.splitlines()) <= 1


def test_given_options_are_not_detected(tmp_path, capsys):
    path = tmp_path / "t.csv"
    TABLE.to_csv(path, sep=";", encoding="latin-1", decimal=",", index=False)
    for sep in (";", "semicolon"):
        read = _tables.read_table(path, options(sep=sep, encoding="latin-1", decimal=","))
        pd.testing.assert_frame_equal(read, TABLE)
    assert capsys.readouterr().err == ""


def test_the_last_letter_of_a_long_file_can_rule_out_utf_8(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + b"1,x\n" * 400_000 + "1,ä\n".encode("cp1252"))
    assert _tables.read_table(path, options())["b"].iloc[-1] == "ä"


@pytest.mark.parametrize(("suffix", "opened"), [("gz", gzip), ("bz2", bz2), ("xz", lzma)])
def test_compressed(suffix, opened, tmp_path):
    path = tmp_path / f"t.csv.{suffix}"
    with opened.open(path, "wb") as file:
        file.write(TABLE.to_csv(sep=";", decimal=",", index=False).encode())
    pd.testing.assert_frame_equal(_tables.read_table(path, options()), TABLE)


@pytest.mark.parametrize(
    ("name", "write", "needs"),
    [
        ("t.parquet", "to_parquet", "pyarrow"),
        ("t.feather", "to_feather", "pyarrow"),
        ("t.arrow", "to_feather", "pyarrow"),
        ("t.xlsx", "to_excel", "openpyxl"),
    ],
)
def test_other_kinds(name, write, needs, tmp_path, monkeypatch):
    pytest.importorskip(needs)
    path = tmp_path / name
    getattr(TABLE, write)(path, **({"index": False} if write == "to_excel" else {}))
    pd.testing.assert_frame_equal(_tables.read_table(path, options()), TABLE)
    with pytest.raises(UserError, match=r"not a CSV file\. Leave --sep out"):
        _tables.read_table(path, options(sep=";"))
    path.write_bytes(b"nothing")
    with pytest.raises(UserError, match=f"{name} cannot be read"):
        _tables.read_table(path, options())
    monkeypatch.setitem(__import__("sys").modules, needs, None)
    extra = "excel" if needs == "openpyxl" else "parquet"
    with pytest.raises(UserError, match=rf"{needs} is not installed.*skprivacy\[{extra}\]"):
        _tables.read_table(path, options())


@pytest.mark.parametrize(
    ("name", "content", "given", "words"),
    [
        ("t.csv", b"a,b\n1,2\n", {"sep": ";;"}, "--sep must be one character"),
        ("t.csv", b"a,b\n1,2\n", {"encoding": "klingon"}, "--encoding 'klingon' is not known"),
        ("t.csv", b"a,b\n1,\xff\n", {"encoding": "utf-8"}, "it is not utf-8. Pass --encoding"),
        ("t.csv", b"a,b\n1,2\n1,2,3,4\n", {}, "--sep, --encoding and --decimal"),
        ("t.csv", b"a,a\n", {}, "at least one row"),
        ("t.csv", b"a, a \n1,2\n", {}, "another column of the same name as column 2"),
        ("t.csv.gz", b"nothing", {}, r"t\.csv\.gz cannot be read"),
        ("t.zip", b"PK", {}, "has an unsupported format. Save it as CSV"),
        ("t.xls", b"", {}, "has an unsupported format"),
    ],
)
def test_errors_name_the_file_and_the_option(name, content, given, words, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=words):
        _tables.read_table(path, options(**given))


def test_columns_that_are_text_stay_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("code,age,city\n007,1,NA\n8,?,Rome\n")
    read = _tables.read_table(path, options(), ["code", "city"], {"age": _tables.MISSING})
    assert read["code"].tolist() == ["007", "8"]
    assert read["city"].tolist() == ["NA", "Rome"]
    assert np.isnan(read["age"].iloc[1])


def test_one_column_needs_no_separator(tmp_path):
    path = Path(tmp_path / "t.csv")
    path.write_text("text\none; two\nthree\n")
    assert _tables.read_table(path, options()).shape == (2, 1)


def test_names_of_columns_steer_no_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"\x1b[31mage": range(40), "label": ["no", "\x1b]0;yes\x07"] * 20})
    table.to_csv("table.csv", index=False)
    draft = succeed("schema draft table.csv --target label --out schema.json", capsys)
    check = succeed("schema check schema.json table.csv", capsys)
    told = [*draft, *check, refuse("train table.csv --target nowhere --save model", capsys)]
    assert not {"\x1b", "\x07"} & set("".join(told))
    assert "\\x1b[31mage" in "".join(told)


@pytest.mark.parametrize(
    "line",
    [
        "audit-predictions t.csv --out t.csv",
        "audit-predictions t.csv --shadows s.csv t.csv --out ./s.csv",
        "audit t.csv --target ward --schema s.csv --out s.csv",
        "audit t.csv --target ward --exposed t.csv",
        "sweep t.csv --target ward --out t.csv",
        "train t.csv --target ward --key s.csv --save m.safetensors --certificate s.csv",
        "train t.csv --target ward --public s.csv --save link.safetensors",
        "predict m.safetensors t.csv --out t.csv",
        "schema draft t.csv --out t.csv",
    ],
)
def test_no_command_overwrites_what_it_reads(line, tmp_path, monkeypatch, capsys):
    """Whose table is private may have it nowhere else."""
    monkeypatch.chdir(tmp_path)
    for name in ("t.csv", "s.csv"):
        TABLE.to_csv(name, index=False)
    Path("link.safetensors").symlink_to("s.csv")
    before = [Path(name).read_bytes() for name in ("t.csv", "s.csv")]
    refuse(line, capsys, "is a file that this command reads, and is not overwritten")
    assert [Path(name).read_bytes() for name in ("t.csv", "s.csv")] == before


def test_no_output_overwrites_another(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("t.csv", index=False)
    line = "audit t.csv --target ward --out a.csv --exposed ./a.csv"
    refuse(line, capsys, "--out and --exposed are one file. Pass two names.")
