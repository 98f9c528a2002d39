"""Quantize a network's weights, and in some ways its activations as well, by torchao, and compare the answers."""

import copy

import torch
import torchao.quantization as ao

torch.manual_seed(0)
device = torch.accelerator.current_accelerator() or torch.device("cpu")
ways = {
    "int8 weights": ao.Int8WeightOnlyConfig(),
    "int8": ao.Int8DynamicActivationInt8WeightConfig(),
    "int4 weights": ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=ao.PerGroup(32)),
    "int8, int4 weights": ao.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=ao.PerGroup(32)
    ),
    "float8 weights": ao.Float8WeightOnlyConfig(),
}
if device.type != "cpu":  # torchao has no such products for the CPU
    ways["float8"] = ao.Float8DynamicActivationFloat8WeightConfig(granularity=ao.PerTensor())
    ways["float8 by rows"] = ao.Float8DynamicActivationFloat8WeightConfig(granularity=ao.PerRow())
if torch._C._dispatch_has_kernel_for_dispatch_key("aten::_weight_int4pack_mm", "PrivateUse1"):
    ways["int4 weights in tiles"] = ao.Int4WeightOnlyConfig(group_size=32, int4_packing_format="tile_packed_to_4d")

model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
model = model.to(device, torch.bfloat16)
inputs = torch.randn(32, 256, device=device, dtype=torch.bfloat16)
with torch.no_grad():
    expected = model(inputs).float()
    errors = {}
    for name, way in ways.items():
        quantized = copy.deepcopy(model)
        ao.quantize_(quantized, way)
        errors[name] = ((quantized(inputs).float() - expected).norm() / expected.norm()).item()
        print(f"{name:21} {errors[name]:.1%} off")

assert all(error < (0.2 if "int4" in name else 0.08) for name, error in errors.items())
print(f"{len(ways)} ways to quantize on {device}: at most {max(errors.values()):.1%} off")
