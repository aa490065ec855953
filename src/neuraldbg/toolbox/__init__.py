"""The toolbox: a session for numbers that are recorded by hand, from any framework or none.

Arrays, gradients, metrics and times enter; a run like any other leaves. A recorded tensor becomes the row of a site in
the step that is open, a metric a scalar of it, a time a fact: detectors, causes, views, reports and exports are those
of an automatic session, and know no difference. No framework is imported: an array is read by what it offers itself.

- ``debug_session.py``: the session: its beginning and its end, and its parts
- ``debug_config.py``: its settings
- ``hand_recording.py``: what a program records by itself: steps, evaluations, inputs
- ``hand_steps.py``: numbers by hand -> Step -> detectors, recorder, run folder
- ``given_arrays.py``: arrays of any framework -> numpy
- ``tensor_inspector.py``, with ``tensor_statistics.py`` and ``tensor_comparison.py``
- ``gradient_debugger.py``: gradients by layer, their health and their trend
- ``model_diagnostics.py``: architecture and metrics, health score and recommendations
- ``hand_profiler.py``: timers and memory
- ``hand_hooks.py``: hooks that are executed by hand
- ``session_parts.py``: the session as the following two see it
- ``session_plots.py``: pictures of a session
- ``session_report.py``: all that a session found, as text and as a file
"""
