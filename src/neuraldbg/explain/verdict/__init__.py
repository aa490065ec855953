"""The way from the findings of all causes to a verdict: ranked, with probabilities, a causal chain and source lines."""
