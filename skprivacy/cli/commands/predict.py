"""``skprivacy predict``: apply a saved model to a table."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from ...persistence import load_model
from .. import data, private_pipeline, reports, tables
from ..console import UserError, check_outputs, print_message, print_result

EXAMPLES = """\
examples:
  skprivacy predict model.safetensors new.csv --out predictions.csv
  skprivacy predict model.safetensors new.csv --probabilities
"""

DESCRIPTION = (
    "Apply a model of `skprivacy train --save` to the rows of a table. Its "
    "guarantee protects the records that it was trained on, not these rows."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("model", metavar="MODEL.safetensors", help="the saved model")
    parser.add_argument("data", metavar="TABLE", help="a table with the columns of the schema")
    parser.add_argument(
        "--probabilities", action="store_true", help="write one column of probabilities per class"
    )
    parser.add_argument(
        "--out", metavar="FILE.csv", help="file to write (default: standard output)"
    )
    tables.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Predict the rows of a table; return the exit code."""
    check_outputs(args.out)
    for name in (args.model, args.data):
        tables.check_file(name)
    model = load_model(args.model)
    schema = private_pipeline.schema_in(model)
    frame = data.read_described_table(Path(args.data), args, schema, None)
    names = list(getattr(model, "feature_names_in_", frame) if schema is None else schema)
    if absent := [name for name in names if name not in frame]:
        raise UserError(
            f"{args.data} lacks columns of the model: {', '.join(absent)}. Add them to the table."
        )
    X = frame[names]
    if args.probabilities:
        if not hasattr(model, "predict_proba"):
            raise UserError(f"{args.model} predicts no probabilities. Leave --probabilities out.")
        found = pd.DataFrame(model.predict_proba(X), columns=[str(c) for c in model.classes_])
    else:
        found = pd.DataFrame({"prediction": model.predict(X)})
    if args.out is None:
        print_result(found.to_csv(index=False).rstrip("\n"))
    else:
        reports.write_table(args.out, found)
        print_message(f"wrote {args.out}")
    return 0
