"""argparse that rejects the command line and exits by itself."""
import argparse

import torch

p = argparse.ArgumentParser()
p.add_argument("data", help="the folder of the data")
p.parse_args()
