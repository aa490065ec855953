import random
import torch
import torch.nn as nn

random.seed(2)
torch.manual_seed(2)

SYLLABLES = {
    'Italian': ['ro', 'ssi', 'co', 'ni', 'be', 'lla', 'vi', 'no', 'zza', 'ri'],
    'Japanese': ['ka', 'mo', 'to', 'shi', 'yu', 'na', 'ga', 'wa', 'ki', 'su'],
    'German': ['sch', 'mit', 'ber', 'ger', 'kel', 'hof', 'mann', 'wei', 'stein', 'dorf'],
    'Russian': ['ov', 'iv', 'an', 'pet', 'sky', 'mik', 'hai', 'lov', 'gor', 'ev'],
    'Irish': ["o'", 'mc', 'bri', 'en', 'kel', 'ly', 'do', 'nagh', 'fla', 'her'],
}
all_categories = list(SYLLABLES)
all_letters = "abcdefghijklmnopqrstuvwxyz'"
n_letters = len(all_letters)
n_categories = len(all_categories)


def random_name(category):
    return ''.join(random.choice(SYLLABLES[category]) for _ in range(4))[:8]


def lines_to_tensor(lines):
    tensor = torch.zeros(8, len(lines), n_letters)
    for j, line in enumerate(lines):
        for i, letter in enumerate(line.rjust(8)):
            if letter != ' ':
                tensor[i, j, all_letters.index(letter)] = 1
    return tensor


def random_training_batch(n=16):
    cats = [random.randrange(n_categories) for _ in range(n)]
    lines = [random_name(all_categories[c]) for c in cats]
    return torch.tensor(cats), lines_to_tensor(lines)


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super(RNN, self).__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
        self.i2o = nn.Linear(input_size + hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input, hidden):
        combined = torch.cat((input, hidden), 1)
        hidden = torch.tanh(self.i2h(combined))
        output = self.softmax(self.i2o(combined))
        return output, hidden

    def init_hidden(self, n):
        return torch.zeros(n, self.hidden_size)


n_hidden = 64
learning_rate = 0.1
criterion = nn.NLLLoss()

rnn = RNN(n_letters, n_hidden, n_categories)
optimizer = torch.optim.SGD(rnn.parameters(), lr=learning_rate)

example = lines_to_tensor(['albert'])
output, next_hidden = rnn(example[0], rnn.init_hidden(1))
print(output)


def train(category_tensor, line_tensor):
    hidden = rnn.init_hidden(line_tensor.size(1))
    optimizer.zero_grad()
    for i in range(line_tensor.size(0)):
        output, hidden = rnn(line_tensor[i], hidden)
    loss = criterion(output, category_tensor)
    loss.backward()
    optimizer.step()
    return output, loss.item()


n_epochs = 500
print_every = 50
current_loss = 0
rnn = RNN(n_letters, n_hidden, n_categories)

for epoch in range(1, n_epochs + 1):
    category_tensor, line_tensor = random_training_batch()
    output, loss = train(category_tensor, line_tensor)
    current_loss += loss
    if epoch % print_every == 0:
        print('%d %d%%  %.4f' % (epoch, epoch / n_epochs * 100, current_loss / print_every))
        current_loss = 0

with torch.no_grad():
    cats, lines = random_training_batch(400)
    hidden = rnn.init_hidden(400)
    for i in range(lines.size(0)):
        output, hidden = rnn(lines[i], hidden)
    print('accuracy %.3f' % (output.argmax(1) == cats).float().mean().item())
