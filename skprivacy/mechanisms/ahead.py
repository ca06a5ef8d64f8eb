"""Normal numbers that another core draws while the value that they are added to is computed."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
from cryptography.hazmat.primitives.ciphers import CipherContext
from numpy.typing import NDArray

from ._process import process
from .entropy import SecureRandom, add_scaled, new_stream

__all__ = ["DrawnAhead"]


class DrawnAhead(SecureRandom):
    """A stream for one release, the first normal numbers of which may be drawn ahead.

    Parameters
    ----------
    random : SecureRandom
        What the key is drawn from: a new one for every stream.
    size : int
        How many normal numbers the release needs.
    elsewhere : bool
        Whether a thread of its own begins to draw them at once. They are the same either way.

    Notes
    -----
    **Guarantees.** The numbers are those that :meth:`SecureRandom.normal` draws of the stream, and
    are given out once: what is added to a second value is drawn anew, and so is what is added to a
    value of another length. A child process gets none of them, and a new key, as it does of every
    stream. Whoever makes a stream a release loses numbers that were drawn for a release that did
    not take place. A thread that draws ends with its work, and keeps nothing.

    **Edge cases.** If there is no thread to be had, or no memory, numbers are drawn when they are
    added: nothing fails for it. If ``random`` is seeded, so is this. Everything else that is drawn
    of the stream comes after the numbers that were drawn ahead: the order in which threads run
    decides nothing.

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
        self._home = process()
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
        # Where there is no room for all of them, they are drawn part by part when they are added.
        with suppress(MemoryError):
            self._drawn.append(self.normal(size))

    def _stream(self) -> tuple[threading.Lock, CipherContext]:
        self._wait()
        return super()._stream()

    def _wait(self) -> None:
        """Let the numbers that are being drawn be drawn first; a child has nobody to wait for."""
        worker = self._worker
        if worker is None or worker is threading.current_thread() or process() != self._home:
            return
        worker.join()
        self._worker = None

    def add_normal(self, values: NDArray, std: float) -> None:
        """Add independent normal numbers of standard deviation ``std`` to a flat array, in place.

        Parameters
        ----------
        values : ndarray of shape (size,)
            The numbers that are added to.
        std : float
            At least 0.
        """
        self._wait()
        try:
            drawn = self._drawn.pop()  # atomic: of two threads one gets them
        except IndexError:
            drawn = None
        if drawn is not None and process() == self._home and len(drawn) == len(values):
            add_scaled(values, drawn, std)
        else:
            super().add_normal(values, std)
