"""An IndentationError far down in the file, after code that would have run."""
print("never printed")
if True:
    x = 1
   y = 2
