"""The record stage: steps to a run, in memory or on disk, and the run read back as a plain value."""

from neuraldbg.record.reader import find_run, read_run
from neuraldbg.record.recorder import Recorder
from neuraldbg.record.ring import RingBuffer

__all__ = ["Recorder", "RingBuffer", "find_run", "read_run"]
