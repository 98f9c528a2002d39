import torch
import torch.nn.functional as F
from _attention import compare, draw
from _numbers import close

q, k, v = draw(2, 2, 5, 16), draw(2, 2, 7, 16), draw(2, 2, 7, 16)
compare(q, k, v, attn_mask=torch.ones(5, 7, dtype=torch.bool).tril(2))
compare(q, k, v, attn_mask=torch.tensor([[True], [False]] * 2 + [[True]]).expand(5, 7))
compare(q, k, v, attn_mask=draw(5, 7))
compare(q, k, v, attn_mask=draw(2, 1, 5, 7))
compare(q[..., :12], k[..., :12], v)
compare(q, k, v[..., 4:])
compare(draw(2, 2, 5, 20)[..., :16], k, v)
compare(draw(2, 2, 5, 32)[..., 2:18], k, v)
compare(draw(2, 2, 5, 32)[..., ::2], k, v)
compare(q[0], k[0], v[0])
compare(*(x.float() for x in (q, k, v)))
compare(draw(2, 4, 5, 16), draw(2, 2, 7, 16), draw(2, 2, 7, 16), enable_gqa=True)
with torch.no_grad():
    compare(q, k[:1].expand(2, -1, -1, -1), v)
F.scaled_dot_product_attention(*(x.to("xcuda") for x in (q, k, v)), dropout_p=0.5)
results = []
for device, dtype in (("xcuda", torch.float16), ("cpu", torch.float64)):
    leaves = [x.to(device, dtype).requires_grad_() for x in (q, k, v)]
    mask = torch.full((5, 7), 0.25, dtype=dtype).to(device).requires_grad_()
    results.append([])
    for added in (None, mask):
        y = F.scaled_dot_product_attention(*leaves, attn_mask=added)
        wanted = leaves if added is None else [*leaves, added]
        results[-1] += [y.detach(), *torch.autograd.grad(y.sum(), wanted)]  # whose gradient has no memory of its own
for got, wanted in zip(*results, strict=True):
    close(got, wanted, scale=1)
