"""The autograd graph of a loss, read before ``backward`` frees it.

May import: statistics, guest.

- ``graph_walk.py``: the walk from the loss: data flow between layers, nodes of the loss, risky operations, leaves
- ``loss_terms.py``: the terms of the loss: kind, reduction, shapes, targets
- ``output_head.py``: the operations between the last layer and the loss, the sign of a term
- ``loss_weights.py``: the derivative of the loss by one element of a term
- ``gaussian_kl.py``: the Kullback-Leibler term of a variational autoencoder
- ``policy_gradient.py``: the sign of a policy gradient
- ``risky_operations.py``: the operations that can make non-finite values, and the operand that shows it
- ``saved_tensors.py``: saved tensors of nodes, and the regions in which the program packs them
"""
