"""A notebook turned into a script: get_ipython guarded, cells rerun, names overwritten, display defined by hand."""
# coding: utf-8
# In[1]:
try:
    get_ipython().run_line_magic("matplotlib", "inline")
except NameError:
    display = print
# In[2]:
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(144); device = "cuda" if torch.cuda.is_available() else "cpu"
# In[3]:
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(device); opt = torch.optim.Adam(model.parameters(), 1e-2)
# In[4]:
for _ in range(8):
    x = torch.randn(16, 4); loss = F.cross_entropy(model(x), x[:, :3].argmax(1)); opt.zero_grad(); loss.backward(); opt.step()
display(loss.item())
# In[5]:
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(device); opt = torch.optim.Adam(model.parameters(), 1e-2)
# In[4]: (again)
for _ in range(8):
    x = torch.randn(16, 4); loss = F.cross_entropy(model(x), x[:, :3].argmax(1)); opt.zero_grad(); loss.backward(); opt.step()
display(loss.item()); _ = model
