"""The readers of what several processes that train one model together are to have in common."""
