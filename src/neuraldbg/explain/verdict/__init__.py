"""The stages from the findings of all causes to a verdict: confidence, ranking, verdict, causal chain, source lines.

The evidence of a cause is first reduced by what a cause of a higher tier explains as well (explaining-away). The rest
becomes a probability: ``sigmoid(slope * evidence + prior[tier] + offset[cause])``, at most what the number of samples
supports. These numbers are in ``calibration.json`` with their provenance: ``make accuracy`` fits them on some base
tasks of the fault corpus and checks them on the others (``docs/accuracy.md``).

Events alone never make a run suspect. A run of which something could not be read is not called healthy, since a fault
may hide there: ``failed`` in its coverage has NeuralDBG's own errors by what they ended, ``unread`` what cannot be
followed. The summary names it.

- ``calibration.py``: the map from evidence to probability
- ``ranking.py``: explaining-away, and the order of the hypotheses
- ``verdict.py``: failing, suspect, healthy or inconclusive, and the summary
- ``causal_chain.py``: cause, events and symptom, in the order of time and data flow
- ``unknown.py``: the hypothesis of a run that none of the known causes explains
- ``layer_words.py``: names for layers whose path is a number
- ``observations.py``: what is unusual beside sound trainings, and no cause's
- ``shipped_numbers.py``: the files of numbers that come with the package
- ``source_lines.py``: the lines of the user's code to show, each with what happens on it
"""
