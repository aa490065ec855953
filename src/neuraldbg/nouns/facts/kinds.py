"""The types of a fact's fields, where Python's own say too little; each is checked when a run file is read."""

from typing import Annotated, NamedTuple, TypeAlias

COUNT, WIDE, CLASS_ID, NUMERAL = "count", "wide", "class id", "numeral"

Count: TypeAlias = Annotated[int, COUNT]
"""How many: not negative."""
Wide: TypeAlias = Annotated[float, WIDE]
"""A number of whatever size, as ids that mark what is to be ignored may be: an integer of 64 bits, or a float."""
ClassId: TypeAlias = Annotated[str, CLASS_ID]
"""The id of a class, an integer, as text: JSON has no other names."""
Numeral: TypeAlias = Annotated[str, NUMERAL]
"""A number as text: JSON has no other names."""


class SourceLine(NamedTuple):
    """A line of the user's code."""

    file: str
    number: int
    """Counted from 1."""
    text: str = ""
    """The source line, empty where it is not known."""
