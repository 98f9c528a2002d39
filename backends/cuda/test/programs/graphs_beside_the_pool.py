import torch

x, graph = torch.ones(1 << 20, device="xcuda"), torch.xcuda.CUDAGraph()
(x * 2).exp()
torch.xcuda.empty_cache()
before = torch.xcuda.memory_reserved()
with torch.xcuda.graph(graph):
    y = (x * 2).exp()
for value in (0.0, 0.5):
    x.fill_(value)
    graph.replay()
    torch.testing.assert_close(y.cpu(), (torch.full((1 << 20,), value) * 2).exp())
del y
graph.reset()
torch.xcuda.empty_cache()
assert torch.xcuda.memory_reserved() == before
