"""RunRecord, Diagnosis -> one file for people: self-contained HTML, or Markdown."""
