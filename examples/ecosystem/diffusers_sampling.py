"""Diffusers: a small UNet, from random weights, draws images from noise; offloaded to the CPU they are the same."""

import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

device = torch.accelerator.current_accelerator() or torch.device("cpu")
torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=16,
    in_channels=3,
    out_channels=3,
    block_out_channels=(8, 16),
    norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)


def draw(pipeline: DDPMPipeline) -> torch.Tensor:
    """Four steps from the same noise."""
    pipeline.set_progress_bar_config(disable=True)
    images = pipeline(2, torch.Generator("cpu").manual_seed(1), num_inference_steps=4, output_type="np").images
    return torch.from_numpy(images)


expected = draw(DDPMPipeline(unet, DDPMScheduler()))
pipeline = DDPMPipeline(unet, DDPMScheduler()).to(device)
assert pipeline.device.type == device.type
torch.testing.assert_close(draw(pipeline), expected, atol=1e-4, rtol=1e-4)
if device.type != "cpu":
    pipeline.to("cpu")
    pipeline.enable_model_cpu_offload()
    assert pipeline._execution_device.type == device.type
    torch.testing.assert_close(draw(pipeline), expected, atol=1e-4, rtol=1e-4)
print(f"Diffusers on {device.type}: images of {tuple(expected.shape)}")
