"""An import that fails, before and after torch."""
try:
    import no_such_module_here
except ImportError as e:
    first = str(e)
import torch

print(first, torch.ones(1).item())
from no_such_package import train
