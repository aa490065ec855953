"""Names, numbers and texts of a run, made safe and short enough to be shown; arrays that people give by hand."""
