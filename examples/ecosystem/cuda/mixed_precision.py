"""A loop with autocast and a scaler."""

import torch

torch.cuda.manual_seed_all(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
scaler = torch.amp.GradScaler("cuda")
torch.backends.cuda.matmul.allow_tf32 = True
losses = []
for _ in range(30):
    x = torch.randn(64, 16, device="cuda")
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16):
        assert torch.is_autocast_enabled("cuda")
        loss = torch.nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
assert scaler.is_enabled()
assert next(model.parameters()).is_cuda
