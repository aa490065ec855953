"""The page: a Feed and the address enter, what the browser shows leaves. Dash, plotly and cytoscape live here only."""
