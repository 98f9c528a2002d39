import torch.nn.functional as F
from _convolutions import compare
from _numbers import drawn

compare(F.conv2d, drawn(2, 3, 8, 9)[..., ::2], drawn(4, 3, 3, 3), drawn(4))
compare(F.conv2d, drawn(2, 4, 8, 8), drawn(4, 4, 3, 3, last=True), drawn(4))
compare(F.conv_transpose2d, drawn(1, 3, 4, 4), drawn(3, 2, 3, 3), None, dilation=2, output_padding=1)
y = F.conv2d(drawn(2, 3, 8, 8).to("xcuda"), drawn(4, 3, 3, 3).to("xcuda").requires_grad_())
y.sum().backward()  # of which the gradient is one number
