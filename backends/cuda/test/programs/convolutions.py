import sys
from functools import partial

import torch
import torch.nn.functional as F
from _convolutions import compare
from _numbers import drawn

draw = partial(drawn, dtype=getattr(torch, sys.argv[1]))
for last in (False, True):
    x, bias = draw(2, 4, 7, 6, last=last), draw(6)
    y = compare(F.conv2d, x, draw(6, 4, 3, 2, last=last), bias, padding=(1, 0), stride=(2, 1))
    assert y.is_contiguous() != last
    compare(F.conv2d, x, draw(6, 2, 3, 3, last=last), None, groups=2, dilation=2, padding=2)
    w = draw(4, 3, 3, 3, last=last)
    compare(F.conv_transpose2d, x, w, draw(6), stride=2, output_padding=1, groups=2)
    compare(F.conv3d, draw(1, 2, 4, 5, 4, last=last), draw(3, 2, 2, 3, 1, last=last), None)
compare(F.conv1d, draw(2, 4, 9), draw(6, 4, 3), draw(6), padding=1)
compare(F.conv2d, draw(1, 4, 5, 5), draw(4, 1, 1, 1), None, groups=4)
