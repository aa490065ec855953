"""A script without torch: a perceptron in plain python and numpy."""
import numpy as np

rng = np.random.default_rng(0)
w = np.zeros(3)
errors = []
for epoch in range(5):
    X = rng.normal(size=(20, 3))
    y = (X[:, 0] - X[:, 1] > 0) * 2 - 1
    wrong = 0
    for a, b in zip(X, y):
        if b * (a @ w) <= 0:
            w += b * a
            wrong += 1
    errors.append(wrong)
print(errors, w)
