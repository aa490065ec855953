"""Readers of what layers do: attention, dropout, batch norm, units, tokens, what goes in and comes out."""
