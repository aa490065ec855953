"""What a graph of torch.compile holds of us, and what Dynamo is kept from comparing because of us."""
