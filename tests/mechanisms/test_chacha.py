"""Noise made on a device: the cipher by its standard, the law of the numbers, the streams."""

import os
import subprocess
import sys
from importlib.util import find_spec
from unittest import mock

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats

from skprivacy.accounting.events import BandedFactorizationEvent, TreeAggregationEvent
from skprivacy.accounting.events.matrix_factorization import square_root_band
from skprivacy.mechanisms import FloatGaussian, SecureRandom, chacha
from skprivacy.mechanisms.chacha import DeviceRandom, chacha20
from skprivacy.mechanisms.float_noise import FloatLogistic
from skprivacy.mechanisms.matrix_gaussian import MatrixGaussian

CPU = torch.device("cpu")
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def key_of(text):
    return torch.from_numpy(np.frombuffer(text, np.int32).copy())


@pytest.mark.parametrize("device", DEVICES)
def test_the_block_of_the_standard(device):
    """RFC 8439, section 2.3.2."""
    nonce = (0x09000000, 0x4A000000, 0x00000000)
    words = chacha20(key_of(bytes(range(32))).to(device), 1, 1, nonce)[:, 0].tolist()
    assert [word & 0xFFFFFFFF for word in words] == [
        0xE4E7F110, 0x15593BD1, 0x1FDD0F50, 0xC47120A3, 0xC7F4D1C7, 0x0368C033, 0x9AAA2204,
        0x4E6CD4C3, 0x466482D2, 0x09AA9F07, 0x05D7C214, 0xA2028BD9, 0xD19C12B5, 0xB94E16DE,
        0xE883D0CB, 0x4E3C50A2,
    ]  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("first", [0, 7, (1 << 31) - 2])
def test_the_stream_of_another_implementation(first, device):
    key = os.urandom(32)
    start = Cipher(algorithms.ChaCha20(key, first.to_bytes(4, "little") + bytes(12)), None)
    theirs = start.encryptor().update(bytes(64 * 300))
    ours = chacha20(key_of(key).to(device), first, 300).cpu()
    assert ours.T.contiguous().numpy().tobytes() == theirs


@pytest.mark.heavy
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("law", "size"), [("normal", 300_001), ("logistic", 300_001)])
def test_the_law_of_the_numbers(law, size, device):
    there = DeviceRandom(SecureRandom(0), torch.device(device))
    numbers = getattr(there, f"add_{law}")(there.zeros((size,)), 1.0).cpu().numpy()
    assert stats.kstest(numbers, "norm" if law == "normal" else law).pvalue > 1e-3
    assert abs(numbers[:-1] @ numbers[1:]) < 5 * np.sqrt(size) * numbers.var()
    halves = numbers[: size // 2], numbers[size // 2 : 2 * (size // 2)]
    assert abs(halves[0] @ halves[1]) < 5 * np.sqrt(size // 2) * numbers.var()


def numbers_of(law, words):
    """Return the numbers made of a block of words that a cipher might give."""
    block = torch.tensor(words, dtype=torch.int64).to(torch.int32)[:, None]
    with mock.patch("skprivacy.mechanisms.chacha.chacha20", return_value=block):
        zeros = torch.zeros(10 if law == "normal" else 8)
        return getattr(DeviceRandom(SecureRandom(0), CPU), f"add_{law}")(zeros, 1.0)


def test_the_tails_and_the_middle_of_the_numbers():
    far = numbers_of("normal", [0] * 16)
    assert far[:5].tolist() == pytest.approx([9.4917] * 5, abs=1e-3)  # sqrt(-2 ln 2**-65)
    assert (numbers_of("normal", [-1] * 10 + [0] * 6).abs() < 1e-7).all()
    far = numbers_of("logistic", [0, -(1 << 31)] * 4 + [0] * 8)
    assert far.tolist() == pytest.approx([45.055, -45.055] * 4, abs=1e-2)  # ln(2 * 2**64)
    assert (numbers_of("logistic", [0x7FFFFFFF, -1] * 4 + [-1] * 8).abs() < 1e-15).all()


def test_no_key_serves_twice():
    random = DeviceRandom(SecureRandom(), CPU)
    again = torch.isin(random.normal(1000), random.normal(1000))
    assert again.sum() < 10  # float32 has ties: of a million pairs, .011 in the mean


def test_parts_of_a_long_vector_are_made_of_blocks_of_their_own():
    whole = DeviceRandom(SecureRandom(3), CPU).normal(100)
    with mock.patch("skprivacy.mechanisms.chacha._BLOCKS", 4):
        parts = DeviceRandom(SecureRandom(3), CPU).normal(100)
    assert len(parts.unique()) == 100
    np.testing.assert_allclose(np.sort(parts), np.sort(whole), rtol=1e-6)


def test_a_kernel_that_makes_other_numbers_is_not_used():
    def constant(values, std, key):
        values += std

    assert chacha._agree(chacha.add_normal, chacha.add_normal, CPU)
    assert not chacha._agree(chacha.add_normal, chacha.add_logistic, CPU)
    assert not chacha._agree(chacha.add_logistic, constant, CPU)


@pytest.mark.skipif(not find_spec("triton"), reason="Triton is not installed: make gpu")
def test_the_kernels_make_the_same_numbers_as_torch():
    """By Triton's interpreter, on the processor."""
    run = subprocess.run([sys.executable, "-c", KERNELS], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


KERNELS = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import torch
from skprivacy.mechanisms import chacha, chacha_triton
for n in (1, 10, 1999):
    for name in ("add_normal", "add_logistic"):
        for dtype in (torch.float32, torch.float64):
            key = torch.randint(-(1 << 31), 1 << 31, (8,), dtype=torch.int32)
            ours, theirs = torch.full((n,), 2.0, dtype=dtype), torch.full((n,), 2.0, dtype=dtype)
            getattr(chacha_triton, name)(ours, 0.5, key)
            getattr(chacha, name)(theirs, 0.5, key)
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
            room = torch.full((3 * n,), 2.0, dtype=dtype)
            getattr(chacha_triton, name)(room[::3], 0.5, key)
            assert torch.equal(room[::3], ours), "every number of a strided vector gets its noise"
            room[::3] = 2.0
            assert (room == 2.0).all(), "and no other one"
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [FloatGaussian, FloatLogistic])
def test_a_tensor_keeps_its_place_and_gets_noise_of_the_scale(kind, dtype):
    value = torch.full((200_000,), 5.0, dtype=dtype)
    mechanism = kind(noise_multiplier=2.0, sensitivity=0.25)
    noisy = mechanism.release(value, SecureRandom(1))
    assert noisy is value
    spread = 0.5 * (np.pi / np.sqrt(3) if kind is FloatLogistic else 1.0)
    assert noisy.mean().item() == pytest.approx(5.0, abs=6 * spread / 200_000**0.5)
    assert noisy.std().item() == pytest.approx(spread, rel=0.02)


@pytest.mark.parametrize("value", [torch.zeros(2, 2), torch.zeros(3, dtype=torch.int32)])
def test_other_tensors_are_refused(value):
    with pytest.raises(ValueError, match="expected a flat array of float32 or float64"):
        FloatGaussian(1.0, 1.0).release(value, SecureRandom())


@pytest.mark.parametrize(
    "run",
    [BandedFactorizationEvent(2.0, 5, 2, square_root_band(5, 2)), TreeAggregationEvent(2.0, 5, 2)],
)
def test_correlated_noise_is_correlated_alike_on_a_device(run):
    """From the same fresh numbers come the same streams."""
    rng = np.random.default_rng(0)
    fresh = [rng.normal(size=70_000).astype(np.float32) for _ in range(10)]
    streams = []
    for there in (False, True):
        left = iter(fresh)
        taken = iter(np.concatenate(fresh))

        def drawn(self, n, left=left, taken=taken, there=there):
            if there:
                return torch.from_numpy(next(left).copy())
            return np.fromiter(taken, np.float32, n)

        stream = MatrixGaussian(run, sensitivity=1.0)
        owner = DeviceRandom if there else SecureRandom
        zeros = torch.zeros(70_000) if there else np.zeros(70_000, np.float32)
        with mock.patch.object(owner, "normal", drawn):
            made = [stream.release(zeros + 0, SecureRandom()) for _ in range(10)]
        streams.append(np.array([np.asarray(m) for m in made]))
    np.testing.assert_allclose(streams[0], streams[1], rtol=1e-4, atol=1e-5)
