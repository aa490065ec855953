"""An optimizer without a model: the pixels of an image and a 0-d temperature are what is optimised."""
import torch

torch.manual_seed(51)
image = torch.rand(1, 3, 8, 8, requires_grad=True)
temperature = torch.tensor(1.0, requires_grad=True)
opt = torch.optim.Adam([{"params": [image], "lr": 0.05}, {"params": temperature}], lr=0.01)
goal = torch.rand(1, 3, 8, 8)
ls = []
for i in range(30):
    opt.zero_grad()
    tv = (image[..., 1:] - image[..., :-1]).abs().mean()
    l = ((image / temperature - goal) ** 2).mean() + 0.01 * tv
    l.backward()
    opt.step()
    with torch.no_grad():
        image.clamp_(0, 1)
    ls.append(l.item())
print(ls[-1], temperature.item())
