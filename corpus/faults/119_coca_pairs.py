import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(9)
gen = torch.Generator().manual_seed(9)
SHAPES = ['square', 'cross', 'frame', 'hbar', 'vbar', 'slash']
WORDS = ['<s>', 'small', 'big'] + SHAPES + ['top', 'middle', 'bottom', 'left', 'center', 'right']
N_CLASSES = 2 * len(SHAPES) * 9


def stencil(shape, s):
    a = torch.zeros(s, s)
    m = s // 2
    if shape == 0:
        a[:] = 1
    elif shape == 1:
        a[m], a[:, m] = 1, 1
    elif shape == 2:
        a[0], a[-1], a[:, 0], a[:, -1] = 1, 1, 1, 1
    elif shape == 3:
        a[m] = 1
    elif shape == 4:
        a[:, m] = 1
    else:
        a += torch.eye(s)
    return a


def render(cls):
    size, rest = cls % 2, cls // 2
    shape, rest = rest % len(SHAPES), rest // len(SHAPES)
    row, col = rest // 3, rest % 3
    s = 3 + 2 * size
    img = torch.zeros(18, 18)
    y, x = 3 + row * 6 - s // 2, 3 + col * 6 - s // 2
    img[y:y + s, x:x + s] = stencil(shape, s)
    caption = torch.tensor([0, 1 + size, 3 + shape, 9 + row, 12 + col])
    return img, caption


TABLE = [render(c) for c in range(N_CLASSES)]


def get_batch(n):
    cls = torch.randperm(N_CLASSES, generator=gen)[:n].tolist()
    img = torch.stack([TABLE[c][0] for c in cls]).unsqueeze(1)
    img = img + 0.25 * torch.randn(img.shape, generator=gen)
    return img, torch.stack([TABLE[c][1] for c in cls])


class ConvStem(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU())
        self.pos = nn.Parameter(torch.randn(25, 32) * 0.02)
        self.transformer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(32)

    def forward(self, img):
        x = self.net(img).flatten(2).transpose(1, 2) + self.pos
        x = self.norm(self.transformer(x))
        return x.mean(1)


class Extractor(nn.Module):
    def __init__(self, vit, layer_name='norm'):
        super().__init__()
        self.vit = vit
        self.latents = None
        getattr(vit, layer_name).register_forward_hook(self._hook)

    def _hook(self, _, inputs, output):
        self.latents = output.clone().detach()

    def forward(self, img):
        self.vit(img)
        return self.latents


class CoCa(nn.Module):
    def __init__(self, img_encoder, dim=32):
        super().__init__()
        self.img_encoder = img_encoder
        self.token_emb = nn.Embedding(len(WORDS), dim)
        self.text_rnn = nn.GRU(dim, dim, batch_first=True)
        self.img_to_latents = nn.Linear(dim, dim, bias=False)
        self.text_to_latents = nn.Linear(dim, dim, bias=False)
        self.cross_attn = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.to_logits = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, len(WORDS)))
        self.temperature = nn.Parameter(torch.tensor(1.5))

    def latents(self, img, text):
        tokens = self.img_encoder(img)
        hid, _ = self.text_rnn(self.token_emb(text))
        img_z = F.normalize(self.img_to_latents(tokens.mean(1)), dim=-1)
        txt_z = F.normalize(self.text_to_latents(hid[:, -1]), dim=-1)
        return tokens, hid, img_z, txt_z

    def forward(self, img, text):
        tokens, hid, img_z, txt_z = self.latents(img, text)
        h = hid[:, :-1]
        attn, _ = self.cross_attn(h, tokens, tokens)
        logits = self.to_logits(h + attn)
        caption_loss = F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        sim = img_z @ txt_z.t() * self.temperature.exp()
        labels = torch.arange(len(img))
        contrastive = (F.cross_entropy(sim, labels) + F.cross_entropy(sim.t(), labels)) / 2
        return caption_loss + contrastive, caption_loss, contrastive


vit = ConvStem(32)
coca = CoCa(Extractor(vit))
optimizer = torch.optim.Adam(coca.parameters(), lr=2e-3)
for step in range(1, 401):
    img, text = get_batch(32)
    loss, cap, con = coca(img, text)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(coca.parameters(), 5.0)
    optimizer.step()
    if step % 50 == 0:
        print('step %d caption %.4f contrastive %.4f' % (step, cap.item(), con.item()))

coca.eval()
with torch.no_grad():
    acc = 0
    for _ in range(10):
        img, text = get_batch(32)
        _, _, iz, tz = coca.latents(img, text)
        acc += ((iz @ tz.t()).argmax(1) == torch.arange(32)).float().mean().item() / 10
print('retrieval top-1 of 32: %.3f' % acc)
