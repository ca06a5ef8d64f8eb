"""The command line as a user meets it: a line, its exit code and its output."""

from skprivacy.cli import main


def run(line, capsys):
    """Return the exit code of a command, its output and its messages."""
    capsys.readouterr()
    code = main(line.split())
    return code, *capsys.readouterr()


def succeed(line, capsys):
    """Return the output and the messages of a command that succeeds."""
    code, out, err = run(line, capsys)
    assert code == 0, err
    return out, err


def refuse(line, capsys, *words):
    """Return the messages of a command that ends in a user's error, which holds some words."""
    code, out, err = run(line, capsys)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    for word in words:
        assert word in err
    return err
