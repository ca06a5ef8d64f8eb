"""Validation of scope names: two names that look alike must not have separate caps."""

from __future__ import annotations

import unicodedata

__all__ = ["check_scope_name"]

# Characters drawn as nothing or as a blank that Unicode counts as letters, marks or symbols: the
# "default ignorable" characters of these categories, and the empty Braille pattern.
_INVISIBLE_CHARACTERS = {
    "\u034f", "\u115f", "\u1160", "\u17b4", "\u17b5", "\u180b", "\u180c", "\u180d", "\u180f",
    "\u2800", "\u3164", "\uffa0",
    *map(chr, range(0xFE00, 0xFE10)),  # variation selectors
    *map(chr, range(0xE0100, 0xE01F0)),
}  # fmt: skip


def check_scope_name(parameter: str, name: str) -> None:
    """Raise ValueError for a name that can look like another name.

    **Edge cases.** Letters of different alphabets that look alike are different names.
    """
    for character in name:
        # Not printable: control, format (zero width, bidirectional), surrogate, private use,
        # unassigned, and every separator except the space.
        if not character.isprintable() or character in _INVISIBLE_CHARACTERS:
            known = unicodedata.name(character, "control or unassigned character")
            raise ValueError(
                f"{parameter}={name!a} must not contain U+{ord(character):04X} ({known}): the "
                "name could look like another scope's name. Remove the character."
            )
    if name != name.strip():
        raise ValueError(
            f"{parameter}={name!r} must not begin or end with a blank. Pass {name.strip()!r}."
        )
    if unicodedata.category(name[0]).startswith("M"):
        raise ValueError(
            f"{parameter}={name!a} must not begin with U+{ord(name[0]):04X} "
            f"({unicodedata.name(name[0])}), which combines with the character before the name. "
            "Remove the character."
        )
    if not unicodedata.is_normalized("NFC", name):
        raise ValueError(
            f"{parameter}={name!a} must be in Unicode normal form NFC, as the same name has two "
            'spellings otherwise. Pass unicodedata.normalize("NFC", name).'
        )
