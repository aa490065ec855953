"""The page: a Feed and the address in, the content of the browser out. Only this room imports dash, plotly, cytoscape.

The address is the only state. The browser turns clicks into addresses, and the server answers an address, or a tick,
with the parts that differ from those in the browser. Of a large run the text of a tab comes first, then the panes in
sight, which the browser names; the others are drawn while nothing else happens. plotly.js is the largest part of a
first visit: it is fetched while the page starts, and parsed while the server draws.

- ``app.py``: the Dash app
- ``callbacks.py``: the callbacks, and the answer to a request
- ``request.py``: the run and tab of an address, and the drawing of a pane
- ``address.py``: the query string of the address
- ``context.py``: the data that a tab draws from
- ``tab.py``: the contract of a tab; ``tabs/`` holds one file each
- ``layout.py``: head, tabs and frames of panes
- ``pane_parts.py``: the parts of a pane that have changed
- ``figures.py``: views as plotly figures
- ``suggestions.py``: what costs most and what to change
- ``network.py``: views as cytoscape graphs
- ``components.py``: links, tables and text as Dash components
- ``cache.py``: a bounded cache of views and figures
- ``assets/``: the page's script and style sheet
"""
