"""All devices of one process, and a loader that pins memory."""

import torch

torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(3, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True)
model = torch.nn.DataParallel(torch.nn.Linear(8, 3).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
losses = []
for _ in range(10):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
assert losses[-1] < losses[0]
