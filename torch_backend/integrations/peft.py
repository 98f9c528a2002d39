"""Hugging Face PEFT: adapters are loaded onto the device that PEFT infers if it is told none.

May go once ``peft.utils.other.infer_device`` asks torch.accelerator.
"""

from torch_backend.integrations.library import Library

LIBRARY = Library(
    name="peft",
    versions=("0.17", "1"),
    cuda_code={"peft.utils.other": ("infer_device", "prepare_model_for_kbit_training")},
)
