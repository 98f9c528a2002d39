"""What vLLM asks of a device."""

from typing import Any

import torch
from vllm.platforms.interface import DeviceCapability, Platform, PlatformEnum

from torch_backend import triton
from torch_backend.integrations.host_memory import share_of_memory
from torch_backend.integrations.vllm import LIBRARY

if reason := LIBRARY.not_tried():
    raise RuntimeError(
        f"torch_backend does not serve by this vLLM: {reason}. Install one that was tried, or set "
        "TORCH_BACKEND_INTEGRATIONS=-vllm to serve without the device."
    )

_NAME = torch._C._get_privateuse1_backend_name()
_device: Any = getattr(torch, _NAME)


class DevicePlatform(Platform):
    """The active device, without graphs: with vLLM's Triton where a backend serves it, else without.

    What this class does not have, vLLM asks of ``torch.<name>``.
    """

    _enum = PlatformEnum.OOT
    device_name = device_type = _NAME
    dispatch_key = "PrivateUse1"
    dist_backend = "gloo"
    simple_compile_backend = "eager"
    device_control_env_var = "TORCH_BACKEND_VISIBLE_DEVICES"

    @property
    def supported_dtypes(self) -> list[torch.dtype]:
        """The first is what vLLM takes where a checkpoint's is not among them."""
        return [dtype for dtype in (torch.bfloat16, torch.float16, torch.float32) if dtype in _dtypes()]

    @classmethod
    def dtypes(cls) -> frozenset[torch.dtype]:
        """All that the device has."""
        return _dtypes()

    @classmethod
    def verify_quantization(cls, quant: str) -> None:
        from torch_backend.integrations.vllm import quantization

        quantization.check_method(quant)

    @classmethod
    def check_if_supports_dtype(cls, dtype: torch.dtype) -> None:
        if dtype not in _dtypes():
            has = ", ".join(sorted(str(each).removeprefix("torch.") for each in _dtypes() if each.is_floating_point))
            raise ValueError(f"The device '{_NAME}' has no {dtype}. Give --dtype one of its own: {has}.")

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return _device.get_device_name(device_id)

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return _device.get_device_properties(device_id).total_memory

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> DeviceCapability | None:
        """None: the numbers mean NVIDIA's."""
        return None

    @classmethod
    def num_compute_units(cls, device_id: int = 0) -> int:
        return _device.get_device_properties(device_id).multi_processor_count

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        torch.accelerator.set_device_index(device)

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        _device.manual_seed_all(seed)

    @classmethod
    def get_current_memory_usage(cls, device: torch.types.Device = None) -> float:
        return _device.max_memory_allocated(device)

    @classmethod
    def inference_mode(cls) -> Any:
        return torch.no_grad()

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False

    @classmethod
    def import_kernels(cls) -> None:
        """vLLM's own are for CUDA or the CPU."""

    @classmethod
    def register_triton_kernel_overrides(cls) -> None:
        from torch_backend.integrations.vllm import kernels

        kernels.register(has_triton=_has_triton())

    @classmethod
    def get_attn_backend_cls(cls, selected_backend: Any, attn_selector_config: Any, *_: Any, **__: Any) -> str:
        if _has_triton():
            return "vllm.v1.attention.backends.triton_attn.TritonAttentionBackend"
        from torch_backend.integrations.vllm.attention import PagedBackend  # imports the platform

        for name, is_asked in {
            "multi-head latent attention": attn_selector_config.use_mla,
            "sparse attention": getattr(attn_selector_config, "use_sparse", False),
        }.items():
            if is_asked:
                raise NotImplementedError(
                    f"The model has {name}, for which torch_backend has no kernel yet: '{_NAME}' cannot serve it."
                )
        cache = attn_selector_config.kv_cache_dtype
        if cache is not None and cache not in PagedBackend.supported_kv_cache_dtypes:
            raise NotImplementedError(
                f"torch_backend has no attention over a cache in {cache}: --kv-cache-dtype has to be one of "
                f"{', '.join(PagedBackend.supported_kv_cache_dtypes)}."
            )
        return "torch_backend.integrations.vllm.attention.PagedBackend"

    @classmethod
    def get_punica_wrapper(cls) -> str:
        return "vllm.lora.punica_wrapper.punica_cpu.PunicaWrapperCPU"

    @classmethod
    def opaque_attention_op(cls) -> bool:
        return True

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return True

    @classmethod
    def check_runner_kv_caches_multi_layer(cls) -> None:
        """The caches of several layers may be one tensor."""

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        from vllm.config import CompilationMode, CUDAGraphMode  # imports the platform

        if vllm_config.quant_config is not None:
            from torch_backend.integrations.vllm import quantization

            quantization.check(vllm_config)
        if vllm_config.parallel_config.worker_cls == "auto":
            vllm_config.parallel_config.worker_cls = "torch_backend.integrations.vllm.worker.DeviceWorker"
        vllm_config.parallel_config.disable_custom_all_reduce = True
        compilation = vllm_config.compilation_config
        # The default: graphs are rewritten for vLLM's own kernels. And a graph that is made once, before there is an
        # adapter, has no place for one.
        if compilation.mode == CompilationMode.VLLM_COMPILE or vllm_config.lora_config is not None:
            compilation.mode = CompilationMode.NONE
        elif compilation.mode != CompilationMode.NONE and compilation.backend == cls.simple_compile_backend:
            compilation.backend = "inductor"
            # The compiler makes more of vLLM's own layers than of those that are few operators.
            compilation.custom_ops = ["none" if each == "all" else each for each in compilation.custom_ops]
        compilation.cudagraph_mode = CUDAGraphMode.NONE
        compilation.cudagraph_capture_sizes = []
        cache = vllm_config.cache_config
        if not cache.user_specified_block_size:
            cache.block_size = 16
        if cache.gpu_memory_utilization == type(cache).gpu_memory_utilization:
            cache.gpu_memory_utilization *= share_of_memory(_NAME)


def _has_triton() -> bool:
    return triton.is_declared(_NAME) and triton.problem(_NAME) is None


def _dtypes() -> frozenset[torch.dtype]:
    return _device.get_device_properties().dtypes
