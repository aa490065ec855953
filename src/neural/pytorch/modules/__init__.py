"""Classes and functions that torch lacks, whose source is copied into a generated file.

Only these files of `neural` import torch, and beside it `math` and names of types. A definition may use others of this
folder: they are copied with it.
"""
