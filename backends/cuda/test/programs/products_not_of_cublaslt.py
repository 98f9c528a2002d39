import torch

a, b = torch.randn(5, 12), torch.randn(6, 7)
x, y = a.to("xcuda"), b.to("xcuda")
torch.testing.assert_close((x[:, ::2] @ y).cpu(), a[:, ::2] @ b)
torch.testing.assert_close((x[:1, :6].expand(4, 6) @ y).cpu(), a[:1, :6].expand(4, 6) @ b)
for c, beta in [(torch.randn(5, 1), 1), (torch.randn(7), 0.5)]:
    wanted = torch.addmm(c, a[:, :6], b, beta=beta)
    torch.testing.assert_close(torch.addmm(c.to("xcuda"), x[:, :6], y, beta=beta).cpu(), wanted)
batches, others = torch.randn(3, 5, 6), torch.randn(3, 6, 7)
for part in (torch.randn(5, 7), torch.randn(1, 5, 7), torch.randn(7), torch.randn(3, 1, 7), torch.randn(3, 5, 1)):
    wanted = torch.baddbmm(part, batches, others, beta=0.5, alpha=2)
    found = torch.baddbmm(part.to("xcuda"), batches.to("xcuda"), others.to("xcuda"), beta=0.5, alpha=2)
    torch.testing.assert_close(found.cpu(), wanted)
whole = torch.ones(3, 3, dtype=torch.int32, device="xcuda")
assert (whole @ whole).eq(3).all()
