"""The C++ of declared operators: what :func:`torch_backend.load_operators` registers when it runs, as an extension."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from torch_backend.custom_ops import _parse, _yaml_file
from torch_backend.custom_ops._declaration import (
    PLUGIN,
    BackwardFunction,
    BackwardOperator,
    Function,
    LikeRule,
    Named,
    Operator,
)
from torch_backend.custom_ops._sources import result_of
from torch_backend.operators import rerouting, schemas

_KEPT = {
    "int": "int64_t",
    "SymInt": "c10::SymInt",
    "float": "double",
    "bool": "bool",
    "str": "std::string",
    "Scalar": "at::Scalar",
    "ScalarType": "at::ScalarType",
    "int[]": "std::vector<int64_t>",
    "SymInt[]": "std::vector<c10::SymInt>",
    "float[]": "std::vector<double>",
}
"""How a backward holds an argument that is no tensor."""

_AUTOCAST = {
    "lower_precision_fp": "at::autocast::get_lower_precision_fp_from_device_type(at::kPrivateUse1)",
    "fp32": "at::kFloat",
    "promote": "at::autocast::promote_type(\n"
    "      at::autocast::get_lower_precision_fp_from_device_type(at::kPrivateUse1), at::kPrivateUse1, {names})",
}

_INSTEAD = "Load the declaration when the program runs, with torch_backend.load_operators."


def write(file: str | os.PathLike[str], folder: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write the C++ of the operators that a YAML file declares: ``<file>.h`` and ``<file>.cpp`` in ``folder``.

    The header declares the functions that the vendor writes: ``kernel: acme_kernels:scale`` is
    ``acme_kernels::scale`` with the arguments of the schema, and so is a ``meta`` that is a function. A backward that
    is one is ``variable_list(AutogradContext*, variable_list)``: it returns a gradient for each positional argument,
    and ``ctx->get_saved_variables()`` has what ``save`` names. A kernel must not call the official operator that is
    rerouted to its own. Nothing is registered or imported, and a file whose text would be the same is not touched.

    Returns both paths. Raises what :func:`torch_backend.load_operators` raises, and DeclarationError for what only
    Python can do: ``vmap``, ``setup_context``, and ``kernel: plugin``.
    """
    data, faults = _yaml_file.read(file)
    operators = _parse.parse(data, faults, resolve=False)
    every = {operator.overload: operator.schema for operator in operators}
    written = [_CppOperator(operator, every) for operator in operators]
    for index, operator in enumerate(written):
        for key, message in operator.faults():
            place = (index, key) if isinstance(data, list) else (key,)
            faults.add(place, operator.overload, message)
    faults.check()
    name, stem = Path(file).name, Path(file).stem
    texts = {f"{stem}.h": _header(written, name), f"{stem}.cpp": _source(written, name, stem)}
    Path(folder).mkdir(parents=True, exist_ok=True)
    for target, lines in texts.items():
        path, text = Path(folder) / target, "\n".join(lines) + "\n"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return Path(folder) / f"{stem}.h", Path(folder) / f"{stem}.cpp"


def _header(operators: "list[_CppOperator]", file: str) -> Iterator[str]:
    yield from (
        f"// The functions that {file} names. Written by torch-backend codegen; do not edit.",
        "#pragma once",
        "",
    )
    yield from ("#include <ATen/core/Tensor.h>", "#include <torch/csrc/autograd/custom_function.h>")
    functions = dict.fromkeys(function for operator in operators for function in operator.functions())
    for place, returns, parameters in functions:
        namespace, _, name = place.rpartition("::")
        yield from ("", f"namespace {namespace} {{", f"{returns} {name}({parameters});", "}")


def _source(operators: "list[_CppOperator]", file: str, stem: str) -> Iterator[str]:
    yield from (f"// The operators of {file}. Written by torch-backend codegen; do not edit.", "")
    yield from (f'#include "{stem}.h"', "", "#include <cstdlib>", "#include <string_view>", "")
    yield from ("#include <ATen/ATen.h>", "#include <ATen/autocast_mode.h>")
    yield from ("#include <torch/csrc/autograd/functions/utils.h>", "#include <torch/library.h>", "", "namespace {")
    for operator in operators:
        yield from operator.code()
    yield from ("", "} // namespace")
    for namespace in dict.fromkeys(operator.namespace for operator in operators):
        own = [operator for operator in operators if operator.namespace == namespace]
        yield from _library(f"TORCH_LIBRARY_FRAGMENT({namespace}, m)", (operator.definition for operator in own))
        for key in ("PrivateUse1", "Meta", "Autograd", "AutocastPrivateUse1"):
            kernels = (operator.registration(key) for operator in own)
            yield from _library(f"TORCH_LIBRARY_IMPL({namespace}, {key}, m)", filter(None, kernels))
    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        routes = [line for operator in operators for line in operator.routes(key)]
        switch = f"  if (const char* wanted = std::getenv(\"{rerouting.SWITCH}\"); wanted && wanted[0] == '0') {{"
        yield from _library(
            f"TORCH_LIBRARY_IMPL(aten, {key}, m)", [switch, "    return;", "  }", *routes] if routes else []
        )


def _library(macro: str, lines: Any) -> Iterator[str]:
    if body := list(lines):
        yield from ("", f"{macro} {{", *body, "}")


@dataclass(frozen=True)
class _Signature:
    """An operator as the dispatcher calls its C++ kernels."""

    returns: str
    arguments: tuple[tuple[str, str], ...]
    """C++ type and name."""

    @classmethod
    def of(cls, schema: torch.FunctionSchema) -> "_Signature":
        from torchgen import local
        from torchgen.api.types import DispatcherSignature

        with local.parametrize(use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False):
            found = DispatcherSignature.from_schema(_parsed(schema))
            arguments = tuple((binding.type, binding.name) for binding in found.arguments())
            return cls(found.returns_type().cpp_type(), arguments)

    @property
    def parameters(self) -> str:
        return ", ".join(f"{kind} {name}" for kind, name in self.arguments)

    @property
    def type(self) -> str:
        return f"{self.returns} ({', '.join(kind for kind, _ in self.arguments)})"

    @property
    def names(self) -> str:
        return ", ".join(name for _, name in self.arguments)


class _CppOperator:
    """The text about one operator. ``every`` has the schemas of the operators that are declared with it."""

    def __init__(self, operator: Operator, every: dict[str, torch.FunctionSchema]) -> None:
        self._operator = operator
        self._every = every
        self.overload, self.namespace = operator.overload, operator.namespace
        self._id = self.overload.partition("::")[2].replace(".", "_")

    @cached_property
    def _signature(self) -> _Signature:
        return _Signature.of(self._operator.schema)

    def faults(self) -> Iterator[tuple[str, str]]:
        """What cannot be written, as key and message."""
        operator = self._operator
        try:
            _ = self._signature
        except Exception as error:  # torchgen asserts
            yield "func", f"torchgen has no C++ for the schema: {type(error).__name__}: {error}"
        if operator.kernel == PLUGIN:
            yield "kernel", f"the device library has the kernel, so that there is no C++ to write. {_INSTEAD}"
        if operator.vmap is not None:
            yield "vmap", f"a rule of torch.vmap is a Python function. {_INSTEAD}"
        if isinstance(operator.backward, BackwardFunction) and operator.backward.setup_context is not None:
            yield "backward", f"setup_context is a Python function: write save. {_INSTEAD}"
        if operator.backward is not None and not self._results:
            yield "backward", "the operator returns nothing, so that there is nothing to have gradients of."
        if operator.autocast not in (None, "fallthrough") and "Tensor?[]" in self._kinds.values():
            yield "autocast", f"a list of tensors that may be missing is cast by load_operators only. {_INSTEAD}"
        for source in self._values:
            if self._kinds[source].removesuffix("?") not in _KEPT:
                yield "backward", f"'{source}' is a {self._kinds[source]}, which a C++ backward cannot hold. {_INSTEAD}"
        if operator.reroute and "Tensor[]" in self._kinds.values():
            yield "reroute", f"PyTorch passes lists of tensors to its own operators in another type. {_INSTEAD}"
        for official in operator.reroute:
            if operator.backward is None and schemas.is_composite(schemas.find(official)):
                yield (
                    "reroute",
                    f"{official} is made of others, whose gradients are lost without a backward. {_INSTEAD}",
                )

    def functions(self) -> Iterator[tuple[str, str, str]]:
        """What the vendor writes: qualified name, result and parameters."""
        own = self._signature.returns, self._signature.parameters
        for function in (self._operator.kernel, self._operator.meta):
            if isinstance(function, Named):
                yield _qualified(function), *own
        if isinstance(self._operator.backward, BackwardFunction):
            parameters = "torch::autograd::AutogradContext* ctx, torch::autograd::variable_list grads"
            yield _qualified(self._operator.backward.function), "torch::autograd::variable_list", parameters

    @property
    def definition(self) -> str:
        """How the library declares it."""
        schema = self._operator.func.strip().partition("::")[2].replace("\\", "\\\\").replace('"', '\\"')
        return f'  m.def("{schema}", {{at::Tag::pt2_compliant_tag}});'

    def registration(self, key: str) -> str | None:
        """How its kernel for a dispatch key is registered; None if it has none of its own."""
        operator, name = self._operator, self.overload.partition("::")[2]
        if key == "PrivateUse1":
            return f'  m.impl("{name}", TORCH_FN({_qualified(operator.kernel)}));'
        if key == "Meta":
            return f'  m.impl("{name}", TORCH_FN({self._meta}));'
        if key == "Autograd":
            return f'  m.impl("{name}", TORCH_FN({self._id}_autograd));' if operator.backward is not None else None
        if operator.autocast == "fallthrough":
            return f'  m.impl("{name}", torch::CppFunction::makeFallthrough());'
        return f'  m.impl("{name}", TORCH_FN({self._id}_autocast));' if operator.autocast is not None else None

    def routes(self, key: str) -> Iterator[str]:
        """How official operators are registered as this one. With a backward theirs is not asked."""
        if key == "PrivateUse1" or self._operator.backward is not None:
            for official in self._operator.reroute:
                yield f'  m.impl("{official.partition("::")[2]}", TORCH_FN({self._id}_call));'

    def code(self) -> Iterator[str]:
        """Its functions."""
        yield from ("", f"// ---- {self.overload} ----")
        yield from self._call(f"{self._id}_call", self.overload, self._signature)
        if not isinstance(self._operator.meta, Named):
            yield from self._function(f"{self._id}_meta", *self._meta_body())
        if self._operator.backward is not None:
            yield from self._autograd_class(self._operator.backward)
            yield from self._function(f"{self._id}_autograd", *self._autograd_body())
        if self._operator.autocast not in (None, "fallthrough"):
            yield from self._function(f"{self._id}_autocast", *self._autocast_body())

    def _function(self, name: str, *body: str) -> Iterator[str]:
        signature = self._signature
        yield from ("", f"{signature.returns} {name}({signature.parameters}) {{", *body, "}")

    def _call(self, name: str, overload: str, signature: _Signature) -> Iterator[str]:
        """Static: the dispatcher is asked once."""
        operator, _, variant = overload.partition(".")
        yield from ("", f"{signature.returns} {name}({signature.parameters}) {{")
        yield f'  static const auto tb_op = c10::Dispatcher::singleton().findSchemaOrThrow("{operator}", "{variant}")'
        yield f"                             .typed<{signature.type}>();"
        yield from (f"  return tb_op.call({signature.names});", "}")

    # ---- meta ----

    @property
    def _meta(self) -> str:
        meta = self._operator.meta
        return _qualified(meta) if isinstance(meta, Named) else f"{self._id}_meta"

    def _meta_body(self) -> Iterator[str]:
        rule = self._operator.meta
        if rule is None:
            return
        assert isinstance(rule, LikeRule)
        outputs = []
        for name in rule.arguments:
            dtype = f", {name}.options().dtype(c10::{_scalar_type(rule.dtype)})" if rule.dtype else ""
            outputs.append(f"at::empty_like({name}{dtype})")
        yield f"  return {_braced(outputs)};"

    # ---- autocast ----

    def _autocast_body(self) -> Iterator[str]:
        names, tensors = list(self._kinds), [name for name, kind in self._kinds.items() if "Tensor" in kind]
        dtype = _AUTOCAST[self._operator.autocast or ""].replace("{names}", ", ".join(tensors))
        yield "  const c10::impl::ExcludeDispatchKeyGuard tb_no_autocast(c10::DispatchKey::AutocastPrivateUse1);"
        yield f"  const auto tb_dtype = {dtype};"
        cast = (f"at::autocast::cached_cast(tb_dtype, {n}, at::kPrivateUse1)" if n in tensors else n for n in names)
        yield f"  return {self._id}_call({', '.join(cast)});"

    # ---- autograd ----

    @property
    def _results(self) -> int:
        return len(self._operator.schema.returns)

    def _autograd_body(self) -> Iterator[str]:
        names, tensors = self._signature.names, ", ".join(n for n, kind in self._kinds.items() if "Tensor" in kind)
        yield f"  if (!c10::GradMode::is_enabled() || !torch::autograd::compute_requires_grad({tensors})) {{"
        yield "    const at::AutoDispatchBelowADInplaceOrView tb_below;"
        yield f"    return {self._id}_call({names});"
        yield "  }"
        call = f"{self._id}_function::apply({names})"
        if self._results == 1:
            yield f"  return {call};"
        else:
            yield f"  const auto tb_outputs = {call};"
            yield f"  return {_braced([f'tb_outputs[{index}]' for index in range(self._results)])};"

    def _autograd_class(self, backward: BackwardFunction | BackwardOperator) -> Iterator[str]:
        result = "at::Tensor" if self._results == 1 else "torch::autograd::variable_list"
        context = "torch::autograd::AutogradContext* tb_ctx"
        yield from ("", f"struct {self._id}_function : torch::autograd::Function<{self._id}_function> {{")
        yield f"  static {result} forward({context}, {self._signature.parameters}) {{"
        yield "    const at::AutoDispatchBelowADInplaceOrView tb_below;"
        call = f"{self._id}_call({self._signature.names})"
        if self._results == 1:
            yield f"    const at::Tensor tb_output = {call};"
        else:
            outputs = ", ".join(f"tb_output_{index}" for index in range(self._results))
            yield from (f"    const auto [{outputs}] = {call};",)
        if self._tensors:
            saved = ", ".join(self._forward_value(source) for source in self._tensors)
            yield f"    tb_ctx->save_for_backward({{{saved}}});"
        for name in self._optional_gradients(backward):
            yield f'    tb_ctx->saved_data["{name} is given"] = {name}.has_value();'
        for source in self._values:
            yield f'    tb_ctx->saved_data["{source}"] = {self._to_keep(source)};'
        yield f"    return {'tb_output' if self._results == 1 else f'{{{outputs}}}'};"
        yield "  }"
        yield f"  static torch::autograd::variable_list backward({context}, torch::autograd::variable_list tb_grads) {{"
        if isinstance(backward, BackwardOperator):
            yield from self._operator_backward(backward)
        else:
            keyword = sum(1 for argument in self._operator.schema.arguments if argument.kwarg_only)
            yield f"    auto tb_found = {_qualified(backward.function)}(tb_ctx, std::move(tb_grads));"
            yield from ([f"    tb_found.resize(tb_found.size() + {keyword});"] if keyword else [])
            yield "    return tb_found;"
        yield from ("  }", "};")

    def _operator_backward(self, backward: BackwardOperator) -> Iterator[str]:
        schema = self._schema_of(backward.operator)
        signature = _Signature.of(schema)
        if self._tensors:
            yield "    const auto tb_saved = tb_ctx->get_saved_variables();"
        operator, _, variant = backward.operator.partition(".")
        yield f'    static const auto tb_op = c10::Dispatcher::singleton().findSchemaOrThrow("{operator}", "{variant}")'
        yield f"                               .typed<{signature.type}>();"
        for source in self._values:
            kind = self._kinds[source]
            kept = _KEPT[kind.removesuffix("?")]
            kept = f"std::optional<{kept}>" if kind.endswith("?") else kept
            yield f'    const auto {source} = tb_ctx->saved_data.at("{source}").to<{kept}>();'
        arguments = [self._backward_value(name, kind) for kind, name in signature.arguments]
        yield f"    const auto tb_found = tb_op.call({', '.join(arguments)});"
        count = len(backward.gradients)
        places = {n: "tb_found" if count == 1 else f"std::get<{i}>(tb_found)" for i, n in enumerate(backward.gradients)}
        for name in self._optional_gradients(backward):  # autograd wants none of what was not there
            given = f'tb_ctx->saved_data.at("{name} is given").toBool()'
            places[name] = f"{given} ? at::Tensor({places[name]}) : at::Tensor()"
        yield f"    return {{{', '.join(places.get(name, 'at::Tensor()') for name in self._kinds)}}};"

    def _optional_gradients(self, backward: BackwardFunction | BackwardOperator) -> list[str]:
        gradients = backward.gradients if isinstance(backward, BackwardOperator) else ()
        return [name for name in gradients if self._kinds[name] == "Tensor?"]

    def _schema_of(self, overload: str) -> torch.FunctionSchema:
        return self._every.get(overload) or schemas.find(overload)._schema

    @cached_property
    def _sources(self) -> dict[str, str | None]:
        """Arguments of the backward operator -> what they get; None: their default."""
        backward = self._operator.backward
        if not isinstance(backward, BackwardOperator):
            return {}
        known = {argument.name for argument in self._operator.schema.arguments}
        names = [argument.name for argument in self._schema_of(backward.operator).arguments]
        sources = {name: backward.arguments.get(name, name) for name in names}
        return {name: s if s in known or self._result(s) else None for name, s in sources.items()}

    def _result(self, source: str) -> tuple[str, int] | None:
        """Which gradient or output a source is; None for an argument, which may be called "output" too."""
        if any(argument.name == source for argument in self._operator.schema.arguments):
            return None
        found = result_of(source)
        return found if found is not None and found[1] < self._results else None

    @cached_property
    def _tensors(self) -> list[str]:
        """What the backward has of saved tensors, in order."""
        if isinstance(self._operator.backward, BackwardFunction):
            return list(self._operator.backward.save)
        return [source for source in self._kept() if self._result(source) or "Tensor" in self._kinds[source]]

    @cached_property
    def _values(self) -> list[str]:
        """What it has of other arguments."""
        return [source for source in self._kept() if not self._result(source) and "Tensor" not in self._kinds[source]]

    def _kept(self) -> list[str]:
        given = dict.fromkeys(source for source in self._sources.values() if source is not None)
        return [source for source in given if (self._result(source) or ("",))[0] != "grad"]

    @cached_property
    def _kinds(self) -> dict[str, str]:
        """The arguments' types, as schemas write them."""
        return {argument.name: str(argument.type) for argument in _parsed(self._operator.schema).arguments.flat_all}

    def _forward_value(self, source: str) -> str:
        """A tensor while the forward runs."""
        if result := self._result(source):
            return "tb_output" if self._results == 1 else f"tb_output_{result[1]}"
        return f"{source}.value_or(at::Tensor())" if self._kinds[source] == "Tensor?" else source

    def _to_keep(self, source: str) -> str:
        kind = self._kinds[source]
        if kind == "str":
            return f"std::string({source})"
        if kind in ("int[]", "float[]", "SymInt[]"):
            return f"{source}.vec()"
        if kind == "str?":
            return f"{source} ? c10::IValue(std::string(*{source})) : c10::IValue()"
        if kind in ("int[]?", "float[]?", "SymInt[]?"):
            return f"{source} ? c10::IValue({source}->vec()) : c10::IValue()"
        return source

    def _backward_value(self, name: str, kind: str) -> str:
        """What the backward operator's argument ``name`` is given, of C++ type ``kind``."""
        source = self._sources[name]
        if source is None:
            assert isinstance(self._operator.backward, BackwardOperator)
            (argument,) = (a for a in self._schema_of(self._operator.backward.operator).arguments if a.name == name)
            return _literal(argument.default_value)
        result = self._result(source)
        if result is not None and result[0] == "grad":
            return f"tb_grads[{result[1]}]"
        if source in self._tensors:
            saved = f"tb_saved[{self._tensors.index(source)}]"
            optional = kind.startswith(("const ::std::optional", "const std::optional"))
            return f"({saved}.defined() ? std::optional<at::Tensor>({saved}) : std::nullopt)" if optional else saved
        return source


def _braced(values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"{{{', '.join(values)}}}"


def _qualified(function: Function | str | LikeRule | None) -> str:
    assert isinstance(function, Named)
    return function.place.replace(":", ".").replace(".", "::")


def _parsed(schema: torch.FunctionSchema) -> Any:
    """As torchgen has it, which knows SymInt and ScalarType from int."""
    from torchgen.model import FunctionSchema

    return FunctionSchema.parse(str(schema).partition("::")[2])


def _scalar_type(dtype: torch.dtype | None) -> str:
    """``torch.float32`` as c10 names it, "kFloat"."""
    return "k" + str(torch.empty(0, dtype=dtype).type()).rpartition(".")[2].removesuffix("Tensor")


def _literal(value: Any) -> str:
    """A default value of a schema in C++."""
    if value is None:
        return "std::nullopt"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, (list, tuple)):
        return f"{{{', '.join(map(_literal, value))}}}"
    return repr(value)
