"""The record stage: steps to a run, in memory or on disk, and the run read back as a plain value."""

from neuraldbg.record.budget import file_bound, ring_bytes
from neuraldbg.record.reader import read_run
from neuraldbg.record.recorder import Recorder
from neuraldbg.record.ring import RingBuffer
from neuraldbg.record.run_names import RunName, find_run, others
from neuraldbg.record.session_file import read_session
from neuraldbg.record.spare import Spare

__all__ = [
    "Recorder",
    "RingBuffer",
    "RunName",
    "Spare",
    "file_bound",
    "find_run",
    "others",
    "read_run",
    "read_session",
    "ring_bytes",
]
