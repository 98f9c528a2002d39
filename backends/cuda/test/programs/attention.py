import sys
from functools import partial

import torch
from _attention import compare
from _numbers import drawn

draw = partial(drawn, dtype=getattr(torch, sys.argv[1]))
for options in ({}, {"scale": 0.5}, {"is_causal": True}):
    compare(draw(2, 3, 5, 16), draw(2, 3, 7, 16), draw(2, 3, 7, 16), **options)
compare(draw(1, 2, 40, 8), draw(1, 2, 40, 8), draw(1, 2, 40, 24), is_causal=True)
compare(draw(1, 2, 1, 8), draw(1, 2, 1, 8), draw(1, 2, 1, 24))
compare(*(draw(2, 5, 3, 16).transpose(1, 2) for _ in range(3)))
compare(*draw(2, 5, 3, 3, 16).permute(3, 0, 2, 1, 4), is_causal=True)
with torch.inference_mode():
    compare(draw(2, 4, 5, 16), draw(2, 2, 7, 16), draw(2, 2, 7, 16), enable_gqa=True)
    compare(draw(2, 3, 5, 16), draw(2, 3, 7, 16), draw(2, 3, 7, 16))
with torch.no_grad():
    compare(draw(2, 3, 5, 16).requires_grad_(), draw(2, 3, 7, 16), draw(2, 3, 7, 16))
