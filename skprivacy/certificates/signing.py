"""Ed25519 signatures over the sections of a certificate."""

from __future__ import annotations

import base64
import hashlib
import json
from os import PathLike
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from .._files import as_path, create_file, read_file

Key = str | PathLike[str] | Ed25519PrivateKey
ALGORITHM = "Ed25519"
_RAW = serialization.Encoding.Raw, serialization.PublicFormat.Raw
_LONGEST = 1023  # bytes; the limit of OpenSSL


def create_key(path: str | PathLike[str], *, password: str | None = None) -> str:
    """Create an Ed25519 key pair for signing certificates.

    Parameters
    ----------
    path : str or Path
        File of the private key. It must not exist, and only its owner can read it. The public key,
        for those who check certificates, is written next to it, with ``.pub`` added.
    password : str, default=None
        Password that encrypts the private key. None leaves it unencrypted.

    Returns
    -------
    str
        The fingerprint of the key. Publish it where others trust it to be yours.

    Raises
    ------
    FileExistsError
        If one of the two files exists; a key is never overwritten.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from skprivacy.certificates import create_key
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fingerprint = create_key(Path(folder) / "hospital.pem")
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['hospital.pem', 'hospital.pem.pub']
    """
    private = Path(as_path("path", path))
    key, public = Ed25519PrivateKey.generate(), Path(f"{private}.pub")
    secret = _secret(password)
    if public.exists():
        raise FileExistsError(f"There is a key at {public} already; pass another path.")
    protected = (
        serialization.NoEncryption()
        if secret is None
        else serialization.BestAvailableEncryption(secret)
    )
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protected
    )
    shown = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    create_file(private, text, 0o600)
    try:
        create_file(public, shown)
    except BaseException:  # a private key without its public key is useless
        private.unlink()
        raise
    return fingerprint(key.public_key())


def private_key(key: Key, password: str | None) -> Ed25519PrivateKey:
    """Read the private key that :func:`create_key` wrote."""
    if isinstance(key, Ed25519PrivateKey):
        return key
    secret = _secret(password)
    file, found = Path(as_path("key", key)), None
    try:
        found = serialization.load_pem_private_key(read_file(file), secret)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(
            f"key={str(key)!r} is not a private key, or its password is wrong ({error}). Create "
            "one with skprivacy.certificates.create_key."
        ) from error
    if not isinstance(found, Ed25519PrivateKey):
        raise ValueError(f"key={str(key)!r} is not an Ed25519 key. Create one with create_key.")
    return found


def _secret(password: str | None) -> bytes | None:
    """Return a password as bytes; refuse an empty one, as of an unset variable."""
    if password is None:
        return None
    if not isinstance(password, str):
        raise TypeError("password must be text, or None.")
    secret = password.encode("utf-8", "replace")
    if not 1 <= len(secret) <= _LONGEST or secret.decode() != password:
        raise ValueError(
            f"password must be text of 1 to {_LONGEST} bytes in UTF-8. For a key without a "
            "password, pass None."
        )
    return secret


def public_key(key: str | PathLike[str] | Ed25519PublicKey) -> Ed25519PublicKey:
    """Read a public key from a file that :func:`create_key` wrote."""
    if isinstance(key, Ed25519PublicKey):
        return key
    file, found = Path(as_path("key", key)), None
    try:
        found = serialization.load_pem_public_key(read_file(file))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(
            f"key={str(key)!r} is not a public key ({error}). Pass the file whose name ends in "
            ".pub."
        ) from error
    if not isinstance(found, Ed25519PublicKey):
        raise ValueError(f"key={str(key)!r} is not an Ed25519 key. Pass a .pub file of create_key.")
    return found


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the SHA-256 of a public key, which identifies it."""
    return "sha256:" + hashlib.sha256(key.public_bytes(*_RAW)).hexdigest()


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value, independent of the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sign(sections: dict[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """Return a signature over the digests of the sections, so that altered ones can be named."""
    digests = {name: digest(section) for name, section in sections.items()}
    # RFC 8032: Ed25519 over the digests of the sections.
    return {
        "algorithm": ALGORITHM,
        "digests": digests,
        "public_key": _text(key.public_key().public_bytes(*_RAW)),
        "value": _text(key.sign(_signed(digests))),
    }


def altered_sections(
    sections: dict[str, Any], signature: Any
) -> tuple[Ed25519PublicKey, list[str]]:
    """Return the signer's key and the altered sections; ValueError for an invalid signature."""
    try:
        if signature["algorithm"] != ALGORITHM:
            raise ValueError(f"its algorithm is {signature['algorithm']!r}, not {ALGORITHM}")
        key = Ed25519PublicKey.from_public_bytes(_bytes(signature["public_key"]))
        digests = {str(k): str(v) for k, v in signature["digests"].items()}
        key.verify(_bytes(signature["value"]), _signed(digests))
    except InvalidSignature:
        raise ValueError("it was not made by this key for these sections") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is incomplete ({error!r})") from None
    names = sorted({*digests, *sections})
    return key, [
        name for name in names
        if name not in sections or digests.get(name) != digest(sections[name])
    ]  # fmt: skip


def _signed(digests: dict[str, str]) -> bytes:
    text = json.dumps(digests, sort_keys=True, separators=(",", ":"))
    return b"skprivacy certificate\n" + text.encode()


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
