"""torchtitan: its profiler records what the device does. All else asks PyTorch.

May go once it asks torch.accelerator, or torch.profiler.supported_activities().
"""

from torch_backend.integrations.library import Library

LIBRARY = Library(
    name="torchtitan",
    versions=("0.3", "1"),
    cuda_code={"torchtitan.tools.profiler": ("Profiler.build_torch_profiler",)},
)
