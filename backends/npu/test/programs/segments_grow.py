"""Tensors lie beside each other in one segment, which empty_cache takes apart, and goes back to the device."""

import torch

MIB = 2**20
free, total = torch.npu.mem_get_info(1)
a, b, c = (torch.full((15 * MIB,), i, dtype=torch.uint8, device="npu:1") for i in range(3))
assert b.data_ptr() == a.data_ptr() + 15 * MIB
assert c.data_ptr() == b.data_ptr() + 15 * MIB
assert torch.npu.mem_get_info(1) == (free - 60 * MIB, total)
[segment] = torch.npu.memory._snapshot()["segments"]
assert segment["is_expandable"]
assert segment["total_size"] == 60 * MIB
assert all((x.cpu() == i).all() for i, x in enumerate((a, b, c)))
del a, b
torch.npu.synchronize(1)
torch.npu.empty_cache()
assert torch.npu.mem_get_info(1)[0] == free - 40 * MIB
assert (c.cpu() == 2).all()
del c
torch.npu.empty_cache()
assert torch.npu.mem_get_info(1) == (free, total)
