"""Writers that are interrupted, killed, left without room or rights, and whose files are damaged.

``python -m tests.nightly.hostile_hour ROUNDS [SEED]`` starts two writers in one folder, again and
again.
Each trains, saves and certifies models, sweeps and fills pools, until its signal comes. Whoever
finds the folder afterwards looks whether anything was released uncharged, anything paid for is
lost, anything half is read, or anything failed but by an error of the library's or of a file.
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from sklearn.naive_bayes import GaussianNB

from skprivacy import issue_certificate, load_model, save_model, verify_certificate
from skprivacy.accounting import PrivacyBudget
from skprivacy.attacks import ShadowPool
from skprivacy.certificates import create_key
from skprivacy.linear_model import OutputPerturbationClassifier
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.model_selection import sweep_store as _kept
from skprivacy.persistence.file_format import header_of

X = np.random.RandomState(0).uniform(size=(40, 2))
y = np.arange(40) % 2
WRITERS = 2
HARMS = [None, None, None, "no room", *(["no rights"] if os.getuid() == 0 else [])]
KNOWN = re.compile(
    r"(budget|sweeps)\.ledger(-journal)?|releases|wrong|key\.pem(\.pub)?|model|certificate|sweep|"
    r"pool\d+|\.[0-9a-f]{32}"
)


def _private(budget=None):
    return OutputPerturbationClassifier(bounds=(0, 1), classes=[0, 1], budget=budget)


def _pool(folder, number):
    return ShadowPool(GaussianNB(), n_shadows=4, path=folder / f"pool{number}").fit(X, y)


def _sweep(folder, n):
    budget = PrivacyBudget.open(folder / "sweeps.ledger")
    epsilons = [1 + i / 100 for i in range(n)]
    return PrivacySweepCV(
        _private(budget), epsilons=epsilons, cv=2, baseline=None, path=folder / "sweep"
    ).fit(X, y)


def _write(folder, chance, sweeps):
    """Do one thing that writes."""
    what = chance.choice(["model", "model", "sweep", "pool"])
    if what == "sweep" and sweeps:  # one writer alone: two would make, and charge, a fit twice
        _sweep(folder, chance.randint(1, 30))
    elif what != "model":
        _pool(folder, chance.randint(0, 20))
    else:
        budget = PrivacyBudget.open(folder / "budget.ledger")
        model = _private(budget).fit(X, y)
        released = os.open(folder / "releases", os.O_WRONLY | os.O_APPEND)
        os.write(released, json.dumps(model.coef_.tolist()).encode() + b"\n")
        os.close(released)
        save_model(model, folder / "model")
        issue_certificate(
            model, folder / "certificate", key=folder / "key.pem", model_file=folder / "model",
            budget=budget,
        )  # fmt: skip


def _written(folder, seed, harm, sweeps):
    """Write until the end, which only a signal brings; note errors that should not be."""
    chance = random.Random(seed)
    if harm == "no room":
        resource.setrlimit(resource.RLIMIT_FSIZE, (chance.choice([1, 600, 5000]),) * 2)
    elif harm == "no rights":
        os.setgid(65534)
        os.setuid(65534)
    while True:
        try:
            _write(folder, chance, sweeps)
        except OSError as error:
            if harm and (error.filename or str(folder) in str(error)):
                continue
            raise
        except ValueError as error:
            # Another writer has saved its own model in between: this one is not certified.
            if "model_file=" not in str(error):
                raise


def _started(folder, seed, harm, sweeps):
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGINT, signal.default_int_handler)
    wrong = os.open(folder / "wrong", os.O_WRONLY | os.O_APPEND)
    try:
        warnings.simplefilter("ignore")
        _written(folder, seed, harm, sweeps)
    except KeyboardInterrupt:
        os._exit(130)
    except BaseException:
        if harm == "no room":
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        os.write(wrong, traceback.format_exc().encode())
        os._exit(3)


def _made(folder):
    PrivacyBudget(1e6, path=folder / "budget.ledger")
    PrivacyBudget(1e6, path=folder / "sweeps.ledger")
    create_key(folder / "key.pem")
    (folder / "releases").touch()
    (folder / "wrong").touch()
    (folder / "key.pem").chmod(0o644)  # so that one without rights gets further


def _look(folder, ends):
    """Check all that may not have happened by now; ``ends`` counts the writers so far."""
    assert not (folder / "wrong").read_text(), (folder / "wrong").read_text()
    strange = [name for name in os.listdir(folder) if not KNOWN.fullmatch(name)]
    assert not strange, strange
    budget = PrivacyBudget.open(folder / "budget.ledger")
    budget.verify(budget.digest)
    charged = len(budget.entries())
    released = [json.loads(line) for line in (folder / "releases").read_text().splitlines()]
    assert charged - ends <= len(released) <= charged, (charged, len(released), ends)
    if (folder / "model").exists():
        assert load_model(folder / "model").coef_.tolist() in released
    if (folder / "certificate").exists():
        found = verify_certificate(folder / "certificate", key=folder / "key.pem.pub")
        assert found.holds, found
    sweeps = PrivacyBudget.open(folder / "sweeps.ledger")
    sweeps.verify(sweeps.digest)
    kept = [_kept.load_result(file) for file in (folder / "sweep").glob("fit_*.json")]
    assert len(kept) <= len(sweeps.entries()), "a result that nothing was charged for"
    for place in folder.glob("pool*"):
        if (place / "pool.json").exists():
            pool = _pool(folder, int(place.name[4:]))
            assert (pool.membership(X)[0].sum(0) == 2).all()
    fits = len(sweeps.entries())
    return Counter(charged=charged, released=len(released), fits=fits, lost=fits - len(kept))


def _read(folder, file):
    """Return what a reader gets of a file, in a form that can be compared."""
    if file.name == "model":
        return header_of(file)["privacy"], load_model(file).coef_.shape
    if file.name == "certificate":
        return verify_certificate(file, key=folder / "key.pem.pub").holds
    if file.parent.name == "sweep":
        return len(_sweep(folder, 1).cv_results_["params"])
    if file.name.endswith("ledger"):
        opened = PrivacyBudget.open(file)
        return opened.verify(opened.digest)
    pool = _pool(folder, int(file.parent.name[4:]))
    return pool.masks_.tolist(), [model.theta_.tolist() for model in pool.estimators_]


def _damage(folder, chance):
    """Alter one bit of one file, or cut it: it is refused, or read as it was."""
    files = [p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")]
    others = re.compile(r"releases|wrong|key\.pem.*|.*-journal")
    files = [p for p in files if not others.fullmatch(p.name)]
    file = chance.choice(files)
    before, content = _read(folder, file), file.read_bytes()
    if chance.random() < 0.2:
        damaged = content[: chance.randrange(len(content))]
    else:
        at = chance.randrange(len(content))
        damaged = content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
    file.write_bytes(damaged)
    try:
        after = _read(folder, file)
    except (ValueError, OSError):
        return "refused"
    finally:
        file.write_bytes(content)
    if after == before:
        return "read as it was"
    assert file.name == "certificate", f"{file} was altered, and read: {after!r}"
    assert after is False, "an altered certificate holds"
    return "refused"


def hour(rounds, seed=0):
    """Return how much was charged, released and done to the writers in so many rounds."""
    warnings.simplefilter("ignore")
    chance, counts = random.Random(seed), Counter()
    folder = None
    for number in range(rounds):
        if number % 20 == 0:  # certificates hold the whole ledger
            if folder is not None:
                shutil.rmtree(folder)
            folder, ends, last = Path(tempfile.mkdtemp(prefix="hostile-")), 0, Counter()
            folder.chmod(0o755)
            _made(folder)
        harms = [chance.choice(HARMS) for _ in range(WRITERS)]
        writers = [
            _started(folder, chance.random(), harm, sweeps=not i) for i, harm in enumerate(harms)
        ]
        time.sleep(chance.choice([0.05, 0.3, 1.0, 2.0]) * chance.random())
        for pid in writers:
            how = chance.choice([signal.SIGKILL, signal.SIGINT])
            os.kill(pid, how)
            counts[how.name] += 1
        for pid in writers:
            due = time.monotonic() + 60
            while os.waitpid(pid, os.WNOHANG) == (0, 0):
                assert time.monotonic() < due, "an interrupted writer goes on"
                os.kill(pid, signal.SIGINT)  # one that came before anybody listened
                time.sleep(0.05)
        counts.update(harm for harm in harms if harm)
        ends += len(writers)
        now = _look(folder, ends)
        # A fit is lost to the signal that ends it, and to a disk without room for its result.
        assert harms[0] == "no room" or now["lost"] <= last["lost"] + 1, (last, now)
        counts.update(now - last)
        last = now
        counts[_damage(folder, chance)] += 1
    shutil.rmtree(folder)
    return dict(counts)


if __name__ == "__main__":
    print(hour(*map(int, sys.argv[1:])))
