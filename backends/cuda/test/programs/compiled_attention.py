import torch
import torch.nn.functional as F
from _attention import draw
from _numbers import close

q, k, v, grad = (draw(2, 3, 8, 16) for _ in range(4))


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True) * 2


results = []
for function in (attend, torch.compile(attend, fullgraph=True)):
    leaves = [x.to("xcuda").requires_grad_() for x in (q, k, v)]
    y = function(*leaves)
    results.append([y.detach(), *torch.autograd.grad(y, leaves, grad.to("xcuda"))])
for got, wanted in zip(*results, strict=True):
    close(got, wanted.cpu(), scale=1)
