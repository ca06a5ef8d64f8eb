"""Options from a TOML file, ``--config run.toml``; the command line takes precedence."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._files import read_file
from .console import UserError

OPTION = "--config"


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the file."""
    parser.add_argument(
        OPTION,
        metavar="FILE.toml",
        help="read options from a file, by their names here: epsilon = 1, n-shadows = 64, [set] "
        "for the model's parameters; the command line takes precedence",
    )


def apply_config_file(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Make the options of the file the defaults of a parser; UserError for unknown ones."""
    name = _config_path(argv)
    if name is None or OPTION not in parser._option_string_actions:
        return
    actions = {
        action.dest: action for action in parser._actions if action.dest not in ("help", "config")
    }
    for key, value in _read_toml(Path(name)).items():
        action = actions.get(key.replace("-", "_"))
        if action is None:
            raise UserError(
                f"{name}: {key!r} is not an option of this command. The options are "
                f"{', '.join(sorted(actions))}."
            )
        action.default = _convert_value(parser, name, key, value, action)
        action.required = False
        if not action.option_strings:  # DATA, which is then given by the file
            action.nargs = "?"


def _config_path(argv: Sequence[str]) -> str | None:
    for word, after in zip(argv, [*argv[1:], None], strict=True):
        if word == OPTION:
            return after
        if word.startswith(f"{OPTION}="):
            return word.partition("=")[2]
    return None


def _read_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(read_file(path).decode("utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}). Check {OPTION}.") from error
    except ValueError as error:
        raise UserError(f"{path} is not TOML: {error}.") from error


def _convert_value(
    parser: argparse.ArgumentParser, name: str, key: str, value: Any, action: argparse.Action
) -> Any:
    """Return a value as the command line would give it: parsers convert text only."""
    if isinstance(action, argparse._StoreTrueAction):
        if not isinstance(value, bool):
            raise UserError(f"{name}: {key} = {value!r} must be true or false.")
        return value
    if isinstance(value, dict):
        if key != "set":
            raise UserError(f"{name}: [{key}] is a table; expected one value.")
        return [(k, tuple(v) if isinstance(v, list) else v) for k, v in value.items()]
    values = value if isinstance(value, list) else [value]
    if any(isinstance(one, bool | dict | list) for one in values):
        raise UserError(f"{name}: {key} = {value!r} must be text or a number.")
    texts = list(map(str, values))
    try:
        takes_several = action.nargs in ("+", "*")
        return parser._get_values(action, texts if takes_several else [",".join(texts)])
    except argparse.ArgumentError as error:
        raise UserError(f"{name}: {key} = {value!r}: {error.message}.") from None
