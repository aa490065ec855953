"""Layers and metrics that Keras lacks, whose source is copied into a generated file.

Only these files of `neural` import keras, and they import nothing else but numpy. A definition may use others of this
folder: they are copied with it.
"""
