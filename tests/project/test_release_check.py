"""The release check compares versions and archives, and fails if they differ."""

import pytest

import skprivacy
from tests.tools.release_check import check_version, compare_archives


def test_code_citation_and_release_notes_name_one_version():
    assert check_version("") == skprivacy.__version__


@pytest.mark.parametrize("tag", ["v99.0", skprivacy.__version__])
def test_another_tag_is_refused(tag):
    with pytest.raises(SystemExit, match="expected 'v"):
        check_version(tag)


@pytest.mark.parametrize(
    ("second", "equal"), [({"a": b"1"}, True), ({"a": b"2"}, False), ({"b": b"1"}, False)]
)
def test_archives_of_other_names_or_bytes_are_refused(second, equal, tmp_path, capsys):
    for folder, files in (("first", {"a": b"1"}), ("second", second)):
        (tmp_path / folder).mkdir()
        for name, content in files.items():
            (tmp_path / folder / name).write_bytes(content)
    if equal:
        compare_archives(tmp_path / "first", tmp_path / "second")
        assert capsys.readouterr().out.endswith(" a\n")
        return
    with pytest.raises(SystemExit, match="Two builds of one commit differ"):
        compare_archives(tmp_path / "first", tmp_path / "second")
