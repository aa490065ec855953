"""The sentence on the batch of a step, where the session has kept it beside the run file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuraldbg.explain.evidence.case import Case

_NAME = re.compile(r"batch-\d+[-\w]*\.npz", re.ASCII)


def kept_batch(case: Case, step: int | None) -> str:
    """Return the sentence on the batch of a step, "" if that was not kept. The run may come from anybody."""
    kept = case.run.info.coverage.get("kept_batches")
    name = kept.get(str(step)) if isinstance(kept, dict) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return ""
    return f'The batch of step {step} is kept beside the run file: numpy.load("{name}").'
