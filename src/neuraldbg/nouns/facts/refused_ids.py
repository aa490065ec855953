"""The REFUSED_IDS fact: ids that an embedding has no row for, in a call that raised."""

from typing import ClassVar

from neuraldbg.nouns.facts.kinds import Count, Wide
from neuraldbg.nouns.facts.known import Known
from neuraldbg.nouns.frozen import frozen


@frozen
class RefusedIdsFact(Known):
    """The last call of a model that an embedding refused."""

    KEY: ClassVar = "refused_ids"

    layer: str = ""
    """Path of the embedding, empty if its table is a parameter of no watched model."""
    rows: Count = 0
    """Rows of the table: ids go from 0 to one less."""
    width: Count = 0
    """Elements of a row."""
    low: Wide = 0
    """Smallest id of the call."""
    high: Wide = 0
    """Largest id of the call."""
    number: Count = 0
    """Ids outside of the table."""
    ids: Count = 0
    """Ids of the call."""
    sample: Count = 0
    """Index of the first sample with such an id."""
    calls: Count = 0
    """Calls of models that ended so: a program may go on with the next batch."""
