"""Readers of layers: attention, dropout, batch norm, units, tokens, inputs and outputs of models.

- ``attention_entropy.py``: entropy of attention weights and size of scores
- ``batch_norm.py``: settings and statistics of batch normalisation
- ``dropout.py``: dropout masks in the graph of the loss
- ``nonlinearities.py``: operations between layers
- ``output_variety.py``: variation of a model's inputs and outputs over the batch
- ``token_similarity.py``: cosine between positions of a sequence, block by block
- ``unit_symmetry.py``: equal rows of weight matrices
- ``layer_visits.py``: the base of readers that read some layers in a training pass
"""
