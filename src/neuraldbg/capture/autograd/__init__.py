"""The graph of a loss, read before ``backward`` frees it."""
