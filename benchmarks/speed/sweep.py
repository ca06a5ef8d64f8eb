"""Time of a sweep on Adult, and the share of it outside fits and attacks.

All times are processor time of this process and of its workers, so that other programs on the
machine count little. Overhead is the time of a single process outside fits, shadow models, scores
and attacks.
"""

import json
import time

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.quick import choose, make_parser
from benchmarks.shared.timing import processor_seconds
from skprivacy import DPSGDClassifier, PrivacySweepCV, SchemaTransformer
from skprivacy.attacks import LiRA, ShadowPool
from skprivacy.model_selection import sweep_runner


class Timed:
    """Processor time within replaced functions; a call from one to another counts once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside = False

    def replace(self, module, name, what):
        function = getattr(module, name)

        def timed(*args, **kwargs):
            if self._inside:
                return function(*args, **kwargs)
            self._inside, start = True, time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self._inside = False
                spent = time.process_time() - start
                self.seconds[what] = self.seconds.get(what, 0.0) + spent

        setattr(module, name, timed)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--epsilons",
        type=float,
        nargs="+",
        default=choose([0.1, 0.3, 1, 3, 10, 30, 100], [1.0, 10.0]),
    )
    parser.add_argument("--shadows", type=int, default=choose(16, 4))
    parser.add_argument("--splits", type=int, default=choose(5, 2))
    parser.add_argument("--subset", default="train", choices=["train", "test", "all"])
    parser.add_argument("--jobs", type=int, default=None, help="without it overhead is measured")
    parser.add_argument("--path", help="folder in which results are kept")
    args = parser.parse_args()
    adult = fetch_adult(subset=args.subset, as_frame=True)
    model = make_pipeline(
        SchemaTransformer(adult.schema, dtype=np.float32),
        DPSGDClassifier(delta=1e-6, classes=adult.classes, random_state=0),
    )
    sweep = PrivacySweepCV(
        model,
        epsilons=args.epsilons,
        attack=LiRA(pool=args.shadows, random_state=0) if args.shadows else None,
        cv=StratifiedKFold(args.splits, shuffle=True, random_state=0),
        n_jobs=args.jobs,
        path=args.path,
    )
    timed = Timed()
    if args.jobs is None:
        timed.replace(sweep_runner, "fit_and_score", "fits and scores")
        timed.replace(sweep_runner, "measure_leakage", "attacks")
        timed.replace(ShadowPool, "fit", "shadow models")
    wall, cpu = time.perf_counter(), processor_seconds()
    sweep.fit(adult.data, adult.target)
    wall, cpu = time.perf_counter() - wall, processor_seconds() - cpu
    told = {"wall": wall, "processor": cpu, "records": len(adult.target)} | timed.seconds
    if args.jobs is None:
        told["overhead"] = 1 - sum(timed.seconds.values()) / cpu
    print(json.dumps({k: round(v, 3) for k, v in told.items()}))
    if not args.shadows:
        return
    for epsilon, score, area in zip(
        args.epsilons,
        sweep.cv_results_["mean_test_score"],
        sweep.cv_results_["mean_attack_auc"],
        strict=True,
    ):
        print(f"epsilon {epsilon:g}: accuracy {score:.4f}, attack AUC {area:.4f}")


if __name__ == "__main__":
    main()
