"""The report: a RunRecord and a Diagnosis enter, one file for people leaves, self-contained HTML or Markdown."""
