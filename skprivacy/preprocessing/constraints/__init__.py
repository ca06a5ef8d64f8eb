"""Rules between columns that hold in every record, as public facts of a schema.

Files, in reading order:

- ``constraint``: the base class, its check against columns, and what bins hold
- ``column_constraints``: equal, ordered and summed columns
- ``value_constraints``: mapped columns, and impossible values
- ``possible_record``: a record that satisfies all constraints, or a proof that there is none
"""

from .column_constraints import EqualColumns, OrderedColumns, SummedColumns
from .constraint import BinContents, Constraint, translate_codes
from .possible_record import find_possible_record
from .value_constraints import ImpossibleValues, MappedColumn

__all__ = [
    "BinContents",
    "Constraint",
    "EqualColumns",
    "ImpossibleValues",
    "MappedColumn",
    "OrderedColumns",
    "SummedColumns",
    "find_possible_record",
    "translate_codes",
]
