import sys

import torch
from _functions import case
from _numbers import close

function, inputs = case(sys.argv[1])
there, graph = [x.to("xcuda") for x in inputs], torch.xcuda.CUDAGraph()
if "warm" in sys.argv:
    function(*there)
with torch.xcuda.graph(graph):
    y = function(*there)
for _ in range(2):
    inputs = case(sys.argv[1])[1]
    [x.copy_(new) for x, new in zip(there, inputs, strict=True)]
    graph.replay()
    close(y, function(*(x.double() for x in inputs)))
