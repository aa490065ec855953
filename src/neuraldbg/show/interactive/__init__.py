"""Views as plotly figures, for notebooks and the dashboard (the extra ``dashboard``)."""
