"""A Triton backend for any device: kernels are compiled to Triton's IR, and then interpreted on copies of tensors."""

import functools
import hashlib
import types

import host_libdevice
import triton
from triton._C.libtriton import ir, passes
from triton.backends.compiler import BaseBackend, GPUTarget
from triton.language.extra import libdevice
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

from torch_backend.triton.driver import DeviceDriver

# The interpreter asks no compiler which library stands for Triton's own, whose functions are empty.
for _name in ("erf", "exp", "log1p", "pow", "rsqrt", "sqrt", "tanh"):
    setattr(libdevice, _name, getattr(host_libdevice, _name))

launches: list[tuple[str, int]] = []
"""The kernels that were launched, each with its stream."""


class Driver(DeviceDriver):
    def get_current_target(self):
        return GPUTarget("interpreted", "host", 32)

    def load(self, device, name, image, shared_bytes):
        return name

    def address(self, tensor):
        return tensor

    def launcher_cls(self, src, metadata):
        """The driver's own, which launches not what was compiled but where it comes from."""
        return functools.partial(_interpreting, super().launcher_cls(src, metadata), src)

    def launch(self, function, grid, stream, arguments, metadata):
        src, name = function
        launches.append((name, stream))
        values = iter(arguments)
        constants = {path[0]: value for path, value in src.constants.items()}
        named = {
            name: constants[index] if kind == "constexpr" else next(values).value
            for index, (name, kind) in enumerate(src.signature.items())
        }
        call, JITFunction.__call__ = JITFunction.__call__, _call_inside
        try:
            kernel = _interpreted(src.fn.fn)
            interpreter.GridExecutor(kernel.rewrite(), kernel.arg_names, grid, [])(**named)
        finally:
            JITFunction.__call__ = call


def _interpreting(launcher, src, x, y, z, stream, function, *rest):
    launcher(x, y, z, stream, (src, function), *rest)


def _call_inside(function, *args, **kwargs):
    """As InterpretedFunction is called by another, and then as if that had not been: the next kernel is compiled."""
    patched = interpreter._patch_lang(function.fn)
    try:
        return _interpreted(function.fn).rewrite()(*args, **kwargs)
    finally:
        patched.restore()


_interpreted = functools.cache(interpreter.InterpretedFunction)


class Options(types.SimpleNamespace):
    """What Triton's front end asks of every compiler, and what the caller asks for besides."""

    def hash(self):
        return hashlib.sha256(repr(self).encode()).hexdigest()


_DEFAULTS = {
    "num_warps": 4,
    "num_stages": 1,
    "num_ctas": 1,
    "warp_size": 32,
    "debug": False,
    "sanitize_overflow": False,
    "extern_libs": (),
    "backend_name": "interpreted",
    "arch": "host",
    "supported_fp8_dtypes": (),
    "deprecated_fp8_dot_operand_dtypes": (),
    "default_dot_input_precision": "ieee",
    "allowed_dot_input_precisions": ("ieee",),
    "max_num_imprecise_acc_default": 0,
    "instrumentation_mode": "",
    "fpsan_homomorphic_casts": False,
}


class Compiler(BaseBackend):
    binary_ext = "image"

    @staticmethod
    def supports_target(target):
        return target.backend == "interpreted"

    def hash(self):
        return f"interpreted-{triton.__version__}"

    def parse_options(self, options):
        return Options(**{**_DEFAULTS, **options})

    def add_stages(self, stages, options, language=None):
        stages["ttir"] = _simplify
        stages["image"] = lambda module, metadata: str(module).encode()

    def pack_metadata(self, metadata):
        return metadata

    def get_codegen_implementation(self, options):
        return {"min_dot_size": lambda left, right: (1, 1, 1)}

    def load_dialects(self, context):
        pass

    def get_module_map(self):
        return {"triton.language.extra.libdevice": host_libdevice}


def _simplify(module, metadata):
    manager = ir.pass_manager(module.context)
    passes.common.add_inliner(manager)
    passes.common.add_canonicalizer(manager)
    manager.run(module, "simplify")
    metadata["name"] = module.get_entry_func_name()
    metadata["shared"] = 0
    return module
