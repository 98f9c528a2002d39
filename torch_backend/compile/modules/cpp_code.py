"""The C++ around the kernels, which AOTInductor packages. To PyTorch it is the CPU's, and all that it does are calls.

Of operators, by PyTorch's dispatcher: its own, and ``torch_backend::launch`` for kernels.
"""

import ast
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._export.serde.schema import Argument, NamedArgument, Node, SymIntArgument, TensorArgument
from torch._export.serde.serialize import GraphModuleSerializer
from torch._inductor import ir
from torch._inductor.codegen.cpp_utils import cexpr
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.virtualized import V
from torch._ops import OpOverload
from torch.utils import _pytree

from torch_backend.compile.no_cpp_wrapper import NoCppWrapper

_RESIDENT = "_torch_backend_is_resident"


def note_resident(constant: torch.Tensor) -> None:
    """``constant`` stands in for one on the device: see Note [Resident constants]."""
    setattr(constant, _RESIDENT, True)


class CppCode(CppWrapperCpu):
    """That of one package, or of a graph inside it."""

    on_host: tuple[str, ...] = ()
    """The constants of the last package that was written which stay on the CPU."""

    def __init__(self) -> None:
        """For the active device."""
        self.device = torch._C._get_privateuse1_backend_name()
        self.writes_constants = False
        self.texts: dict[str, tuple[list[Any], dict[str, Any]]] = {}
        super().__init__()

    @staticmethod
    def create(*_: Any) -> "CppCode":
        """As PyTorch asks for it. Raises RuntimeError where it is for no package."""
        return CppCode() if V.graph.aot_mode else NoCppWrapper.create()

    def add_device_include(self, device: str) -> None:
        """The headers are the CPU's."""
        super().add_device_include("cpu")

    def write_header(self) -> None:
        """The includes. Of functions in C for one device, only that for views as another dtype is for any."""
        super().write_header()
        self.header.writeline(f"#define aoti_torch_{self.device}_view_dtype aoti_torch_cpu_view_dtype")

    def codegen_device(self, device: torch.device) -> str:
        """A device's type and index. Of ours the current one, which is that for which the package was loaded."""
        if device.type != self.device or self.writes_constants:
            return str(super().codegen_device(torch.device("cpu") if device.type == self.device else device))
        self.used_cached_devices.add("privateuse1")
        return "cached_torch_device_type_privateuse1, -1"

    def codegen_model_constructor(self) -> None:
        """What AOTInductor is to know of constants: they are on the CPU, see Note [Resident constants]."""
        self.writes_constants = True
        super().codegen_model_constructor()
        self.writes_constants = False
        CppCode.on_host = tuple(key for key, value in V.graph.constants.items() if not hasattr(value, _RESIDENT))

    # ---- kernels ----

    def define_kernel(self, kernel_name: str, kernel_body: str, *args: Any, **kwargs: Any) -> None:
        """Keeps the text of a kernel, which ModuleKernel has written as a call in Python."""
        call = ast.parse(kernel_body, mode="eval").body
        assert isinstance(call, ast.Call)
        options = {option.arg or "": ast.literal_eval(option.value) for option in call.keywords}
        self.texts[kernel_name] = [ast.literal_eval(argument) for argument in call.args], options

    def launch(
        self,
        kernel: str,
        units: sympy.Expr,
        cost: sympy.Expr,
        tensors: Sequence[str],
        numbers: Sequence[sympy.Expr],
        on_host: Sequence[str],
    ) -> None:
        """Calls a kernel that was defined; tensors are buffers of the graph."""
        (_, name, texts, body), options = self.texts[kernel]
        strings = {"name": name, "texts": texts, "body": body}
        named = [NamedArgument(name=key, arg=Argument.create(as_string=text)) for key, text in strings.items()]
        for key in ("is_double", "is_32_bit", "may_fail"):
            named.append(NamedArgument(name=key, arg=Argument.create(as_bool=options[key])))
        for key, number in (("per_block", options["per_block"]), ("on_host", len(on_host))):
            named.append(NamedArgument(name=key, arg=Argument.create(as_int=number)))
        all_tensors = [TensorArgument(name=name) for name in (*tensors, *on_host)]
        named.append(NamedArgument(name="tensors", arg=Argument.create(as_tensors=all_tensors)))
        work = [cexpr(number) for number in (units, cost, *numbers)]
        symbols = [SymIntArgument.create(as_name=text) for text in work]  # the code passes a value for each
        named.append(NamedArgument(name="work", arg=Argument.create(as_sym_ints=symbols)))
        integers = [str(options["per_block"]), str(len(on_host)), *work]
        self._describe_call(kernel, "torch_backend::launch", named, [])
        self._write_call([*tensors, *on_host], integers)

    def _describe_call(self, name: str, operator: str, named: Sequence[NamedArgument], outputs: Sequence[str]) -> None:
        """What the package says of the call that is written next."""
        results = [Argument.create(as_tensor=TensorArgument(name=output)) for output in outputs]
        node = Node(target=operator, inputs=list(named), outputs=results, metadata={})
        V.extern_kernel_nodes.append(ir.ExternKernelNode(name=name, node=node))

    def _write_call(self, passed: Sequence[str], integers: Sequence[str]) -> None:
        self.writeline(
            "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_proxy_executor_call_function(proxy_executor, "
            f"{len(V.extern_kernel_nodes) - 1}, {len(integers)}, {_array('int64_t', integers)}, "
            f"{len(passed)}, {_array('AtenTensorHandle', passed)}));"
        )

    # ---- operators ----

    def _cannot_call(self, what: str) -> NotImplementedError:
        return NotImplementedError(
            f"AOTInductor makes no package of this for {self.device}: its code cannot call {what}. Leave that out of "
            "the exported program, or use torch.compile."
        )

    def _call_operator(self, node: Any, arguments: Sequence[Any], outputs: Sequence[str], **options: Any) -> None:
        """Calls the operator of ``node`` with ``arguments``, in order, and those with names."""
        operator = node.op_overload
        if not isinstance(operator, OpOverload):
            raise self._cannot_call(node.get_kernel_name())
        schema = operator._schema.arguments
        given = dict(zip((argument.name for argument in schema), arguments, strict=False)) | options
        values = [_symbolic(given.get(argument.name, argument.default_value)) for argument in schema]
        by_name = {argument.name: value for argument, value in zip(schema, values, strict=True)}
        named = GraphModuleSerializer(None, []).serialize_inputs(operator, (), by_name)
        self._describe_call(node.get_name(), operator.name(), named, outputs)
        # After torch 2.13 by what the last description has.
        tensors, integers = self.generate_extern_kernel_args_decl_if_needed(operator, values, [], [])
        self._write_call([*tensors, *outputs], integers)

    def generate_extern_kernel_out(self, node: Any, *_: Any) -> None:
        """An operator that writes its result into a buffer."""
        node.codegen_comment(self)
        out = node.output_view or node
        names = [argument.name for argument in node.op_overload._schema.arguments if argument.is_out]
        self._call_operator(node, _arguments(node), [out.codegen_reference()], **node.kwargs, **{names[0]: out})

    def generate_extern_kernel_alloc(self, node: Any, *_: Any) -> None:
        """An operator that allocates its result."""
        node.codegen_comment(self)
        name = node.get_name()
        self.writeline(f"AtenTensorHandle {name}_handle;")
        self.writeline(f"AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_uninitialized_tensor(&{name}_handle));")
        self.writeline(f"RAIIAtenTensorHandle {name}({name}_handle);")
        self._call_operator(node, _arguments(node), [name], **node.kwargs)

    def generate_fallback_kernel(self, node: Any, *_: Any) -> None:
        """An operator of which PyTorch has a function in C for its own devices: called as others are."""
        # After torch 2.13 the node itself may be the result.
        results = node.codegen_outputs() if hasattr(node, "codegen_outputs") else node.outputs or node.mutation_outputs
        exported = node.export_extern_kernel_node()
        self.generate_fallback_kernel_with_runtime_lookup(
            node.get_name(), node.python_kernel_name, list, node.op_overload, exported, results
        )

    def generate_scatter_fallback(self, node: Any, *_: Any) -> None:
        """An operator that writes where indices say."""
        place, *others = node.inputs
        arguments = [place, *node.constant_args[:1], *others, *node.constant_args[1:]]
        options = {key: value for key, value in node.kwargs.items() if value is not None}
        self._call_operator(node, arguments, [place.codegen_reference()], **options)

    def generate_index_put_fallback(self, node: Any, *_: Any) -> None:
        """As generate_scatter_fallback, with a list of indices."""
        place, values, *indices = node.inputs
        given = iter(indices)
        all_indices = [None if index is None else next(given) for index in node.indices]
        self._call_operator(node, [place, all_indices, values, *node.constant_args], [place.codegen_reference()])

    def generate_c_shim_extern_kernel_call(self, kernel: str, *args: Any, **kwargs: Any) -> None:
        """What PyTorch has a function in C for, on its own devices: raises NotImplementedError."""
        raise self._cannot_call(kernel)


def _arguments(node: Any) -> list[Any]:
    return [*node.inputs, *node.constant_args]


def _symbolic(value: Any) -> Any:
    """``value`` with expressions as PyTorch's symbolic numbers, and devices as the one that is current."""
    shape_env = V.graph.sizevars.shape_env

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, sympy.Expr):
            return int(leaf) if leaf.is_Integer else shape_env.create_symintnode(leaf, hint=None)
        return torch.device(leaf.type) if isinstance(leaf, torch.device) else leaf

    return _pytree.tree_map(convert, value, is_leaf=lambda leaf: isinstance(leaf, ir.IRNode))


def _array(kind: str, values: Sequence[str]) -> str:
    return f"std::array<{kind}, {len(values)}>{{{', '.join(values)}}}.data()"
