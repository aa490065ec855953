"""The record stage: steps to a run, in memory or on disk, and the run read back as a plain value."""

from neuraldbg.record.budget import file_bound, ring_bytes
from neuraldbg.record.reader import find_run, read_run
from neuraldbg.record.recorder import Recorder
from neuraldbg.record.ring import RingBuffer

__all__ = ["Recorder", "RingBuffer", "file_bound", "find_run", "read_run", "ring_bytes"]
