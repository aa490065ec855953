"""The record stage: steps to a run file or a run in memory, and either read back as a plain ``RunRecord``.

**Writing.** The training thread only queues a step, about a microsecond each. The queue is bounded in steps and bytes;
when the writer does not keep up, further steps are folded into bins, so that training never waits for a disk. The
coverage report says how many; events, facts and counts of non-finite values are never lost. Every half second a writer
thread, which takes no signals, stores the queue in one transaction of an SQLite file (WAL). So the file is always
whole: a killed process loses less than the last second of training, a power cut may lose a little more.

**A file that cannot be written.** A lock of another program is waited for, in memory from five seconds on. With a full
disk or a deleted file the run goes on in memory, and is saved at its end if possible, if need be under another name.
The device and inode of SQLite's descriptors are compared with those of the file before each transaction and before its
COMMIT: a program may have closed them and opened its own files at their numbers. Such a connection is never closed; the
file is replaced by a copy of itself. (Between the comparison and the last write of COMMIT another thread could still do
so.) The descriptors have numbers from 512 on, where there are as many, so that the program's are the same as without
us.

**Thinning.** Scalars and tables are two parts of the file, stored in blocks and thinned apart: a light step has scalars
only, some 50 bytes. So the last 2,048 steps keep all their scalars, and the last 2,048 *tables* are kept as well,
although these may span the last 100,000 steps. The first 64 rows, the newest ones and those around events stay as they
were; older ones become bins of 16, 256, 4,096 steps with mean, minimum and maximum. Counts of non-finite values are
summed, never averaged. The sizes follow from the setting ``budget_mb`` (64) and the number of sites; ``file_bound`` is
the largest size of a run file, for a run of any length.

**Reading.** Scalars are laid out in the order of time, tables stay packed by columns: ``history.stat(site, "rms")``
unpacks one column of each block, ``history.row(t)`` one table; only ``history.mean``, ``low`` and ``high`` unpack
everything. A row of time in which no site was read is False in ``history.read``. A row with a table and without scalars
stands for steps whose scalars are in a coarser bin. A live session is read by the same code as a file, so ``neuraldbg
explain`` on the file gives the diagnosis of the live run.

**Files from anybody.** Values of a file are checked once, by type and range; later stages do not check again. Only the
tables that we create are read, rows are counted and blobs measured before one is fetched, SQLite is limited, and the
header of a block is checked against its bytes. Every fact is checked against the shape of its kind, both before it is
written and before a cause reads it; a fact that lacks a required field is of another version, left out, and named in
the coverage report. A failure of a check is ``RunDamaged``; so is an error that a saved run causes in a later stage
(``saved.readable``).

**Names.** A folder may hold several runs and ranks: ``rank0.ndbg``, ``rank0-2.ndbg`` of the second run saved there,
``rank1.ndbg`` of the second process. No file is renamed for a later run. The path of a folder refers to its newest run
of its lowest rank; ``explain`` and ``report`` name the other runs in it.

- ``outcome.py``: how a training ended, and with which versions it was made
- ``recorder.py``: the front door: steps on the training thread, the writer thread, the record of both
- ``write_queue.py``: the steps that wait for the writer
- ``loop_numbers.py``: the numbers that the loop itself gives to its steps
- ``store.py``: the choice between run file and memory
- ``run_file.py``: creation, descriptors and closing of a run file
- ``batch_writer.py``: one batch of steps in one transaction
- ``stored_part.py``: the blocks of one part of a run, scalars or tables
- ``row_block.py``: rows of time as arrays
- ``binning.py``: rows folded into bins
- ``retention.py``: the choice of blocks to fold
- ``budget.py``: sizes that follow from the byte budget
- ``codec.py``: blocks as bytes
- ``histograms.py``: histograms as bytes
- ``schema.py``: the tables of the SQLite file, and values as JSON
- ``reader.py``: a run file to a ``RunRecord``
- ``incremental_reader.py``: the parts of a run read so far; a second reading reads only what is new
- ``follow.py``: a run file that is read while it grows
- ``history.py``: a ``History`` whose tables stay packed
- ``session_file.py``: the exported JSON document of a run, read back
- ``guarded_database.py``: limits and checks of a database from anybody
- ``validation.py``: checks of JSON values
- ``fact_shapes.py``: checks of facts, made from the types of their dataclasses
- ``crash_dump.py``: a crash dump read as a record
- ``run_names.py``: names of run files, and the run file of a path
- ``ring.py``: the flight recorder in memory
- ``kept_batches.py``: the batches of unusual steps, as files beside the run file
- ``signal_masks.py``: a signal that is blocked during our writes
- ``spare.py``: descriptors that are kept for the end of a session

``python benchmarks/memory.py`` records a million synthetic steps of a model of 500 sites, and prints memory, file size
and times.
"""

from neuraldbg.record.budget import file_bound, ring_bytes
from neuraldbg.record.crash_dump import is_dump, read_dump
from neuraldbg.record.kept_batches import KeptBatches
from neuraldbg.record.reader import read_run
from neuraldbg.record.recorder import Recorder
from neuraldbg.record.ring import RingBuffer
from neuraldbg.record.run_names import RunName, find_run, others, rank_files, run_files
from neuraldbg.record.session_file import read_session
from neuraldbg.record.spare import Spare

__all__ = [
    "KeptBatches",
    "Recorder",
    "RingBuffer",
    "RunName",
    "Spare",
    "file_bound",
    "find_run",
    "is_dump",
    "others",
    "rank_files",
    "read_dump",
    "read_run",
    "read_session",
    "ring_bytes",
    "run_files",
]
