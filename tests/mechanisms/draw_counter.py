"""A test that a stream is AES in counter mode, and that its counter never starts again."""

from unittest import mock

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from skprivacy.mechanisms import SecureRandom
from skprivacy.mechanisms.secure_random import _CHUNK

KEY = bytes(range(32))
N_CALLS = 9_000  # of each kind: more than twice the 4,096 after which a planted counter restarts


def check_counter() -> None:
    """Raise AssertionError unless every byte is where the counter of one long stream puts it.

    Bytes are asked for block by block, and chunk by chunk as noise is made of them: 1.1 GB. What
    restarts anywhere on the way is at another place at its end, and every block is compared.
    """
    with mock.patch.object(SecureRandom, "_key", return_value=KEY):
        random = SecureRandom()
    blocks = b"".join(random.random_bytes(16) for _ in range(N_CALLS))
    assert blocks == keystream(0, N_CALLS), "the blocks of a stream are not those of its counter"
    room = bytearray(4 * _CHUNK + 15)
    place = N_CALLS
    for _ in range(N_CALLS):
        random._write(room, 4 * _CHUNK)
        assert room[:16] == keystream(place, 1), f"the counter is not at block {place}"
        place += 4 * _CHUNK // 16


def keystream(first: int, n: int) -> bytes:
    """Encrypt the counters themselves, one by one: what counter mode is, by NIST SP 800-38A."""
    counters = np.zeros((n, 2), ">u8")
    counters[:, 1] = first + np.arange(n)
    return Cipher(algorithms.AES(KEY), modes.ECB()).encryptor().update(counters.tobytes())
