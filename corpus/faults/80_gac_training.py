"""Train the generic answer classifier (bag of words -> intent) of a campus chat bot."""
import numpy as np
import torch
from torch import nn, optim

INTENTS = {
    "hours": ["when does {} open", "when does {} close", "what are the hours of {}", "is {} open on {}"],
    "where": ["where is {}", "how do i get to {}", "which building is {} in", "is {} near {}"],
    "contact": ["what is the phone number of {}", "who do i email at {}", "how can i contact {}"],
    "cost": ["how much does {} cost", "what is the price of {}", "is {} free", "what do i pay for {}"],
    "register": ["how do i sign up for {}", "can i register for {}", "deadline to enroll in {}"],
}
THINGS = ["the library", "the gym", "math 101", "the dining hall", "the advising office", "parking",
          "the co-op center", "chemistry lab", "the bookstore", "calculus two", "student housing",
          "the health center", "monday", "sunday", "the writing center", "physics"]


def build_questions(rng, n):
    questions, labels = [], []
    names = sorted(INTENTS)
    for _ in range(n):
        k = rng.randint(len(names))
        template = INTENTS[names[k]][rng.randint(len(INTENTS[names[k]]))]
        slots = [THINGS[rng.randint(len(THINGS))] for _ in range(template.count("{}"))]
        questions.append(template.format(*slots))
        labels.append(k)
    return questions, np.array(labels)


def vectorize(questions):
    words = sorted({w for q in questions for w in q.split()})
    index = {w: i for i, w in enumerate(words)}
    X = np.zeros((len(questions), len(words)), dtype=np.float32)
    for r, q in enumerate(questions):
        for w in q.split():
            X[r, index[w]] = 1.0
    return X


def train_classifier(X, y, X_val, y_val, epochs=25):
    net = nn.Sequential(nn.Linear(X.shape[1], 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, len(INTENTS)))
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(1, epochs + 1):
        net.train()
        order = torch.randperm(len(X))
        total = 0.0
        for start in range(0, len(X), 64):
            rows = order[start:start + 64]
            optimizer.zero_grad()
            loss = criterion(net(X[rows]), y[rows])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        if epoch % 5 == 0:
            net.eval()
            with torch.no_grad():
                acc = (net(X_val).argmax(1) == y_val).float().mean().item()
            print(f"epoch {epoch} loss {total / len(X):.4f} validation accuracy {acc:.3f}")


def main():
    rng = np.random.RandomState(0)
    torch.manual_seed(0)
    questions, y = build_questions(rng, 1600)
    X = vectorize(questions)
    order = rng.permutation(len(X))
    X = X[order]
    cut = int(0.8 * len(X))
    X, y = torch.from_numpy(X), torch.from_numpy(y)
    train_classifier(X[:cut], y[:cut], X[cut:], y[cut:])


if __name__ == "__main__":
    main()
