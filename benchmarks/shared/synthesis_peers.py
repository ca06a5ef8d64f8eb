"""Other libraries' private synthesizers, as ``accuracy/synthesis`` runs them: on codes of a table.

They are made for tables of categories: numbers are cut into 32 equally wide public bins and the
special values that our synthesizers know too, and are drawn evenly within them afterwards. Settings
are their defaults. Each needs an environment of its own, with its library beside skprivacy and
scikit-learn 1.9.1:

- ``smartnoise-mst``, ``smartnoise-aim``: smartnoise-synth 1.0.8, which brings JAX and mbi 1.1.0.
- ``privbayes``: DataSynthesizer 0.1.13; epsilon alone, no delta.
- ``dpsynth-mst``, ``dpsynth-aim``: dpsynth of 2026-08-20 (github.com/google/dpsynth, in no package
  index) with Python 3.13, JAX 0.11.0, mbi 2.0.0, dp-accounting and etils. ``DPSYNTH`` is its
  folder.
- ``pgm-mst``, ``pgm-aim``: ``mechanisms`` of private-pgm of 2025-08-08
  (github.com/ryan112358/private-pgm), with JAX, networkx and matplotlib. ``PRIVATE_PGM`` is its
  folder.

SDV 2.0.0 and ctgan 0.12.1 install too, and promise no privacy. These do not install beside it: dpmm
0.1.9 pins scikit-learn 1.5.0 and numpy 1.26.4, dpart 0.1.2 scikit-learn 1.0.2; ydata-synthetic
2.0.1 wants numpy below 2; the newest synthcity does not build with a current setuptools.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from skprivacy.preprocessing import BoundedColumn
from skprivacy.synthesis import Grid
from skprivacy.synthesis.domain import Domain

__all__ = ["PEERS", "sample_peer"]

CELLS = 32


def smartnoise(name: str) -> Callable[..., pd.DataFrame]:
    def drawn(codes: pd.DataFrame, epsilon: float, delta: float) -> pd.DataFrame:
        from snsynth import Synthesizer

        made = Synthesizer.create(name, epsilon=epsilon, delta=delta)
        made.fit(codes, categorical_columns=list(codes), preprocessor_eps=0.0)
        return made.sample(len(codes))

    return drawn


def privbayes(codes: pd.DataFrame, epsilon: float, delta: float) -> pd.DataFrame:
    from DataSynthesizer.DataDescriber import DataDescriber
    from DataSynthesizer.DataGenerator import DataGenerator

    with tempfile.TemporaryDirectory() as folder:
        table, description = Path(folder) / "table.csv", Path(folder) / "description.json"
        codes.to_csv(table, index=False)
        describer = DataDescriber(category_threshold=10_000)
        describer.describe_dataset_in_correlated_attribute_mode(
            dataset_file=str(table), epsilon=epsilon, k=2,
            attribute_to_is_categorical=dict.fromkeys(codes, True),
            attribute_to_is_candidate_key=dict.fromkeys(codes, False),
        )  # fmt: skip
        describer.save_dataset_description_to_file(str(description))
        generator = DataGenerator()
        generator.generate_dataset_in_correlated_attribute_mode(len(codes), str(description))
        return generator.synthetic_dataset


def dpsynth(name: str) -> Callable[..., pd.DataFrame]:
    def drawn(codes: pd.DataFrame, epsilon: float, delta: float) -> pd.DataFrame:
        sys.path.insert(0, os.environ["DPSYNTH"])
        import mbi
        from dpsynth import discrete_mechanisms

        config = discrete_mechanisms.DiscreteConfig(
            getattr(discrete_mechanisms, name)(), compress_columns=True
        )
        domain = mbi.Domain(list(codes), [int(size) for size in codes.attrs["sizes"]])
        data = mbi.Dataset({column: codes[column].to_numpy() for column in codes}, domain)
        mechanism = config.calibrate(epsilon=epsilon, delta=delta)
        made = mechanism(np.random.default_rng(), data).synthetic_data
        return pd.DataFrame({column: np.asarray(made.to_dict()[column]) for column in codes})

    return drawn


def private_pgm(name: str) -> Callable[..., pd.DataFrame]:
    def drawn(codes: pd.DataFrame, epsilon: float, delta: float) -> pd.DataFrame:
        root = Path(os.environ["PRIVATE_PGM"])
        sys.path[:0] = [str(root / "src"), str(root / "mechanisms")]
        from mbi import Dataset, Domain

        domain = Domain(list(codes), [int(size) for size in codes.attrs["sizes"]])
        data = Dataset(codes, domain)
        if name == "mst":
            from mst import MST

            return MST(data, epsilon, delta).df
        from aim import AIM

        workload = [(pair, 1.0) for pair in combinations(codes, 2)]
        return AIM(epsilon, delta).run(data, workload)[1].df

    return drawn


PEERS: dict[str, Callable[..., pd.DataFrame]] = {
    "smartnoise-mst": smartnoise("mst"),
    "smartnoise-aim": smartnoise("aim"),
    "privbayes": privbayes,
    "dpsynth-mst": dpsynth("MSTConfig"),
    "dpsynth-aim": dpsynth("AIMConfig"),
    "pgm-mst": private_pgm("mst"),
    "pgm-aim": private_pgm("aim"),
}


def sample_peer(name: str, table: Any, epsilon: float, delta: float, seed: int) -> pd.DataFrame:
    """Return as many records as there are private ones."""
    numeric = [n for n, fact in table.schema.items() if isinstance(fact, BoundedColumn)]
    missing = table.settings.get("columns_with_missing", ())
    train = table.train[list(table.schema)]
    ours = table.settings.get("grids", {})
    cells = {n: Grid(cells=CELLS, atoms=ours.get(n, Grid()).atoms) for n in numeric}
    domain = Domain.from_facts(dict(table.schema), cells, missing, dict(train.dtypes))
    codes, _ = domain.encode([train[n] for n in train])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = pd.DataFrame(codes, columns=list(train))
        frame.attrs["sizes"] = domain.sizes
        drawn = PEERS[name](frame, epsilon, delta)
    made = drawn[list(train)].to_numpy().astype(np.int64)
    return domain.decode(made, np.random.RandomState(seed))
