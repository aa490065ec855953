"""Views as pictures by matplotlib (the extra ``plot``), drawn through its objects and never through pyplot."""
