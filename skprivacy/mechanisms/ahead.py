"""Noise for a release that another core draws while the value is computed."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
from cryptography.hazmat.primitives.ciphers import CipherContext
from numpy.typing import NDArray

from ._process import process_identity
from .entropy import SecureRandom, add_scaled, new_stream

__all__ = ["PrefetchedNoise"]


class PrefetchedNoise(SecureRandom):
    """Random stream for one release of ``size`` numbers, whose normal numbers may be drawn early.

    ``random`` draws the key of the stream. If ``elsewhere``, a thread starts to draw at once; the
    numbers are the same either way.

    **Guarantees.** The numbers are those that :meth:`SecureRandom.normal` draws of the stream, and
    are used once. A second value, or a value of another length, gets new numbers. A child process
    gets a new key and none of these numbers, as with every stream. Numbers of a release that does
    not happen are lost. The drawing thread ends with its work and stores nothing.

    **Edge cases.** Without a free thread or memory, numbers are drawn when they are added. If
    ``random`` is seeded, so is this stream. All other draws from the stream come after the early
    ones, so the order of threads decides nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.mechanisms import FloatGaussian, SecureRandom
    >>> from skprivacy.mechanisms.ahead import DrawnAhead
    >>> noise = DrawnAhead(SecureRandom(), 1000, elsewhere=True)
    >>> total = np.ones(1000)  # takes long, while the noise is drawn
    >>> noisy = FloatGaussian(1.0, 1.0).release(total, noise)
    """

    def __init__(self, random: SecureRandom, size: int, elsewhere: bool) -> None:
        self._seed = random._seed
        self._home = process_identity()
        self._streams = {self._home: new_stream(random.random_bytes(32))}
        self._drawn: list[NDArray[np.float32]] = []
        self._worker: threading.Thread | None = None
        if elsewhere:
            self._worker = threading.Thread(target=self._draw, args=(size,))
            try:
                self._worker.start()
            except RuntimeError:  # no more threads are allowed
                self._worker = None

    def _draw(self, size: int) -> None:
        # Without memory for all of them, they are drawn in chunks when they are added.
        with suppress(MemoryError):
            self._drawn.append(self.normal(size))

    def _stream(self) -> tuple[threading.Lock, CipherContext]:
        self._wait()
        return super()._stream()

    def _wait(self) -> None:
        """Wait for the drawing thread; a child process has none to wait for."""
        worker = self._worker
        if (
            worker is None
            or worker is threading.current_thread()
            or process_identity() != self._home
        ):
            return
        worker.join()
        self._worker = None

    def add_normal(self, values: NDArray, std: float) -> None:
        """Add normal numbers of standard deviation ``std`` to a flat array, in place."""
        self._wait()
        try:
            drawn = self._drawn.pop()  # atomic: only one of two threads gets them
        except IndexError:
            drawn = None
        if drawn is not None and process_identity() == self._home and len(drawn) == len(values):
            add_scaled(values, drawn, std)
        else:
            super().add_normal(values, std)
