"""``session.json``: a debugging session to keep, to send on, and to compare with another.

It is the document of the JSON export with another name, which ``Run.load`` reads back.
"""

from __future__ import annotations

from dataclasses import replace

from neuraldbg.export.json import EXPORTER as JSON

EXPORTER = replace(JSON, name="session", target="session.json")
