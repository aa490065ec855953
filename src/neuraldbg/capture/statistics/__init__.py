"""The statistics of one tensor: accumulated in one row a site, on the CPU and on a device.

May import: guest. Native code does the CPU path where it is built; torch's and numpy's operators give the same numbers.

A dense CPU tensor is read where it lies in memory, in one pass: at most ``block_cap`` elements, in evenly spaced
contiguous blocks of 128, small tensors whole. Sums are taken in float32 a chunk at a time where the values are far from
its limits, else in float64. NaN and infinity are counted apart; moments are over the finite values. The table has
16,384 rows, allocated once, so that a compiled graph can write to it; sites beyond that are not read, and the coverage
report says so.

- ``operation.py``: the statistics operation itself, and sampling
- ``table.py``: the rows of a session, accumulated over a step and turned into ``STATS``
- ``raw_rows.py``: the value that the table gives away at the end of a step
- ``unit_activity.py``: the last step in which each unit was positive, hence dead units
- ``histograms.py``: counts by power of two, in a few steps
- ``layer_types.py``: unit axis and saturation bounds of a module, from its type
- ``nested_tensors.py``: the tensors inside a nested input or output
- ``sample_hashes.py``: hashes of samples, for readers that recognise a sample that comes back
- ``state_digests.py``: small values of what a training holds, for changes that a person makes at a stop
- ``watched_parameter.py``: a parameter of a watched model and its rows
- ``whole_tensors.py``: all numbers of one tensor, copies and files, for hooks of the user
- ``device/``: the same statistics on a CUDA device
"""
