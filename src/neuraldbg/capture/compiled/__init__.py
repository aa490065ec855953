"""The parts of ours in a graph of torch.compile, and the comparisons that Dynamo is spared because of us."""
