"""Readers of layers: attention, dropout, batch norm, units, tokens, inputs and outputs of models."""
