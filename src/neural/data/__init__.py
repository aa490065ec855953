"""Data that a network is trained on: a folder, a file or the name of a data set in, arrays that fit the network out.

- ``opening.py``: what is asked for -> the source that has it -> arrays that fit
- ``archive.py``, ``table.py``, ``image_folder.py``, ``bundled.py``, ``vision.py``, ``synthetic.py``: a source each
- ``fitting.py``: arrays as a source has them -> arrays as the network takes them, with a sentence for every change;
  ``input_shapes.py`` and ``targets.py`` are its halves
- ``inputs.py``: the names of the arrays, and the ids that an Embedding takes; ``memory.py``: the largest data
- ``samples.py``: the values
"""

from neural.data.opening import samples_for
from neural.data.samples import Samples

__all__ = ["Samples", "samples_for"]
