"""How many of the library's files a call enters: what a reader must open to follow it.

``python -m tests.tools.files_entered`` lists those that ``DPSGDClassifier.fit`` enters. A file
counts if a function of it runs; what is executed when a module is imported does not count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import skprivacy

ROOT = Path(skprivacy.__file__).parent


def files_entered(call: Callable[[], Any]) -> list[str]:
    """Return the files of the package, relative to it, of which ``call`` runs a function."""
    entered: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            entered.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return sorted(
        str(Path(name).relative_to(ROOT)) for name in entered if Path(name).is_relative_to(ROOT)
    )


def entered_by_a_private_fit() -> list[str]:
    """Return the files that an ordinary fit of ``DPSGDClassifier`` enters."""
    from skprivacy.neural_network import DPSGDClassifier

    X = np.random.RandomState(0).normal(size=(200, 3))
    model = DPSGDClassifier(classes=[0, 1], delta=1e-3, epochs=2)
    return files_entered(lambda: model.fit(X, (X[:, 0] > 0).astype(int)))


if __name__ == "__main__":
    found = entered_by_a_private_fit()
    print(*found, f"{len(found)} files", sep="\n")
