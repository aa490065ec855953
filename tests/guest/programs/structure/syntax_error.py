"""A script that python cannot compile."""
import torch

for i in range(3)
    print(i)
