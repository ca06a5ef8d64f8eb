"""Charges a second of a budget's ledger, beside the writes a second of its disk.

Charges and commits in a ledger in a folder, by default the current one. Prints the pairs a second
of wall and of processor time for each tenth, and how often a second the disk takes a page.

A pair is two transactions. A transaction of SQLite's rollback journal with ``synchronous=EXTRA``
waits for the disk five times: twice for the journal, once for the file and twice for the folder
(``strace -e trace=fdatasync`` shows them). An emptied or overwritten journal (``TRUNCATE``,
``PERSIST``) waits as often: SQLite syncs the folder whenever it opens a journal, and syncs the end
of the journal instead. Only a write-ahead log waits less (once), and then the file alone is not the
ledger. Opening a connection for each pair takes a fifth of the processor time.

``postgresql://user@host/database#name`` in place of a folder measures a server, which waits once.
``--counter`` is the path of a counter, which each of the two transactions reads and moves.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from benchmarks.shared.quick import choose, make_parser
from skprivacy.accounting import LaplaceEvent, PrivacyBudget

EVENT = LaplaceEvent(1000.0)


def syncs(folder: str, n: int = 100) -> float:
    """Return how often a second a page that is written anew reaches the disk."""
    place = Path(folder) / "page"
    number = os.open(place, os.O_RDWR | os.O_CREAT)
    start = time.perf_counter()
    for _ in range(n):
        os.pwrite(number, os.urandom(4096), 0)
        os.fsync(number)
    took = time.perf_counter() - start
    os.close(number)
    place.unlink()
    return n / took


def pairs(budget: PrivacyBudget, n: int) -> tuple[float, float]:
    """Return pairs of charge and commit in a second, of wall and of processor time."""
    start, worked = time.perf_counter(), time.process_time()
    for _ in range(n):
        with budget.reserve(EVENT, source="benchmark"):
            pass
    return n / (time.perf_counter() - start), n / (time.process_time() - worked)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("place", nargs="?", default=".", help="folder, or address of a server")
    parser.add_argument("--charges", type=int, default=choose(500, 20))
    parser.add_argument("--counter", help="path of the counter")
    options = parser.parse_args()
    place = options.place
    server = place.startswith("postgres")
    with nullcontext(place) if server else tempfile.TemporaryDirectory(dir=place) as folder:
        path = place if server else Path(folder) / "ledger"
        budget = PrivacyBudget(1e9, path=path, counter=options.counter)
        if not server:
            print(f"the disk: {syncs(folder):.0f} writes a second")
        tenth = max(1, options.charges // 10)
        for i in range(10):
            wall, worked = pairs(budget, tenth)
            print(f"charges {i * tenth} to {(i + 1) * tenth}: {wall:.0f} pairs a second, "
                  f"{worked:.0f} in a second of processor time", flush=True)  # fmt: skip
        start = time.process_time()
        budget.verify()
        print(f"verify() of {len(budget.entries())} charges: {time.process_time() - start:.2f} s")
        if not server:
            print(f"the disk: {syncs(folder):.0f} writes a second")


if __name__ == "__main__":
    main()
