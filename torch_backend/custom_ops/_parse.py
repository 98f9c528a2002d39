"""Declarations as data, checked one by one.

Every step adds what it finds to the faults and goes on, so that one run tells all of them.
"""

import difflib
import importlib
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

import torch

from torch_backend.autocast import POLICIES, Policy
from torch_backend.custom_ops import _signatures
from torch_backend.custom_ops._declaration import (
    PLUGIN,
    BackwardFunction,
    BackwardOperator,
    Function,
    LikeRule,
    Named,
    Operator,
)
from torch_backend.custom_ops._faults import Faults, Path
from torch_backend.custom_ops._relations import check_together
from torch_backend.custom_ops._sources import listed, result_of, results, type_of
from torch_backend.operators import schemas

KEYS = ("func", "kernel", "meta", "backward", "vmap", "autocast", "reroute", "doc")
_OFFICIAL = ("aten", "prim", "prims", "quantized", "torch_backend")
_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def parse(data: Any, faults: Faults, *, resolve: bool) -> tuple[Operator, ...]:
    """The operators that ``data`` declares: a mapping, or a list of them.

    ``resolve`` imports the functions and compares with the operators of this process; without it nothing is imported,
    and functions are not looked at. Raises DeclarationError with all faults.
    """
    is_list = isinstance(data, Sequence) and not isinstance(data, str)
    entries: list[tuple[Path, Any]] = [((i,), entry) for i, entry in enumerate(data)] if is_list else [((), data)]
    if is_list and not entries:
        faults.add((), "", "there are no operators in it.")
    operators = []
    for path, entry in entries:
        operator = _Entry(path, entry, faults, resolve).parse()
        if operator is not None:
            operators.append((path, operator))
    check_together(operators, faults)
    faults.check()
    return tuple(operator for _, operator in operators)


class _Entry:
    """One entry while it is checked."""

    def __init__(self, path: Path, entry: Any, faults: Faults, resolve: bool) -> None:
        self._path = path
        self._entry = entry
        self._faults = faults
        self._resolve = resolve
        self._label = f"entry {int(path[0]) + 1}" if path else "the entry"

    def parse(self) -> Operator | None:
        if not isinstance(self._entry, Mapping):
            self._fault((), f"an operator is a mapping with the keys {', '.join(KEYS)}; this is {self._entry!r}.")
            return None
        schema = self._schema()
        self._check_keys((), self._entry, KEYS)
        if schema is None:
            return None
        return Operator(
            func=self._entry["func"],
            schema=schema,
            kernel=self._kernel(schema),
            meta=self._meta(schema),
            backward=self._backward(schema),
            vmap=self._optional_function("vmap", None),
            autocast=self._autocast(schema),
            reroute=self._reroute(schema),
            doc=self._doc(),
        )

    # ---- one key each ----

    def _schema(self) -> torch.FunctionSchema | None:
        func = self._entry.get("func")
        if not isinstance(func, str):
            self._fault(("func",), 'there is no schema: write func: "namespace::name(Tensor x) -> Tensor".')
            return None
        name = func.partition("(")[0].strip()
        self._label = name or self._label
        if not _NAME.fullmatch(name):
            self._fault(("func",), f"'{name}' is no name for an operator; write namespace::name or with .overload.")
            return None
        try:
            schema = torch._C.parse_schema(func)
            _signatures.signature(schema)
        except (RuntimeError, ValueError) as error:
            self._fault(("func",), f"the schema is wrong: {_one_line(error)}")
            return None
        self._check_schema(name, schema)
        return schema

    def _check_schema(self, name: str, schema: torch.FunctionSchema) -> None:
        namespace, _, rest = name.partition("::")
        if namespace in _OFFICIAL:
            self._fault(("func",), f"the namespace '{namespace}' is not free; choose one of your own.")
        if keyword.iskeyword(namespace) or keyword.iskeyword(rest.partition(".")[0]):
            self._fault(("func",), "the name is a keyword of Python.")
        if any(result.alias_info is not None for result in schema.returns):
            self._fault(("func",), "a result that is an argument is not possible; return nothing, or a new tensor.")
        if self._resolve and name in torch._C._dispatch_get_all_op_names():
            self._fault(("func",), "there is an operator of this name already.")

    def _kernel(self, schema: torch.FunctionSchema) -> Function | str:
        value = self._entry.get("kernel")
        if value is None:
            self._fault(("kernel",), f"there is no kernel: write kernel: module:function, or kernel: {PLUGIN}.")
        elif value == PLUGIN:
            return PLUGIN
        else:
            return self._function(("kernel",), value, schema) or PLUGIN
        return PLUGIN

    def _meta(self, schema: torch.FunctionSchema) -> Function | LikeRule | None:
        value = self._entry.get("meta")
        if value is None:
            if schema.returns:
                self._fault(("meta",), "there is no meta: write meta: module:function, or a rule as meta: {like: x}.")
            return None
        if isinstance(value, Mapping):
            return self._like_rule(value, schema)
        return self._function(("meta",), value, schema)

    def _like_rule(self, value: Mapping[str, Any], schema: torch.FunctionSchema) -> LikeRule:
        self._check_keys(("meta",), value, ("like", "dtype"))
        like = self._names(("meta", "like"), value.get("like"))
        tensors = [a.name for a in schema.arguments if a.type.kind() == "TensorType"]
        for name in like:
            if name not in tensors:
                self._fault(("meta", "like"), f"'{name}' is not one of the tensors {listed(tensors)}.")
        if any(result.type.kind() != "TensorType" for result in schema.returns) or len(like) != len(schema.returns):
            self._fault(
                ("meta", "like"), f"the rule names {len(like)} tensors, the operator returns {results(schema)}."
            )
        dtype = value.get("dtype")
        if isinstance(dtype, str):
            dtype = getattr(torch, dtype.removeprefix("torch."), dtype)
        if dtype is not None and not isinstance(dtype, torch.dtype):
            self._fault(("meta", "dtype"), f"{dtype!r} is no dtype.")
            dtype = None
        return LikeRule(like, dtype)

    def _backward(self, schema: torch.FunctionSchema) -> BackwardFunction | BackwardOperator | None:
        value = self._entry.get("backward")
        if value is None:
            return None
        if schemas.is_mutating(schema):
            self._fault(("backward",), "an operator that writes to its arguments can have no backward.")
        if any(a.kwarg_only and "Tensor" in str(a.type) for a in schema.arguments):
            self._fault(("backward",), "with a tensor that is keyword-only there can be no backward.")
        if not isinstance(value, Mapping):
            function = self._function(("backward",), value, None)
            return None if function is None else BackwardFunction(function)
        if "operator" in value:
            return self._backward_operator(value, schema)
        self._check_keys(("backward",), value, ("function", "save", "setup_context"))
        function = self._function(("backward", "function"), value.get("function"), None)
        setup_context = None
        if value.get("setup_context") is not None:
            setup_context = self._function(("backward", "setup_context"), value["setup_context"], None)
            if "save" in value:
                self._fault(("backward", "save"), "save and setup_context exclude each other.")
        save = self._names(("backward", "save"), value.get("save", ()))
        for source in save:
            self._check_source(("backward", "save"), source, schema, ("output",))
            if type_of(source, schema) not in (None, "Tensor", "Optional[Tensor]"):
                self._fault(("backward", "save"), f"'{source}' is no tensor; setup_context can keep it.")
        return None if function is None else BackwardFunction(function, save, setup_context)

    def _backward_operator(self, value: Mapping[str, Any], schema: torch.FunctionSchema) -> BackwardOperator | None:
        self._check_keys(("backward",), value, ("operator", "arguments", "gradients"))
        operator = value["operator"]
        arguments = value.get("arguments", {})
        if not isinstance(operator, str) or not isinstance(arguments, Mapping):
            self._fault(
                ("backward",), "operator is a name, and arguments a mapping from its arguments to what they get."
            )
            return None
        for source in arguments.values():
            self._check_source(("backward", "arguments"), source, schema, ("grad", "output"))
        gradients = self._names(("backward", "gradients"), value.get("gradients"))
        differentiable = [a.name for a in schemas.positional(schema) if str(a.type) in ("Tensor", "Optional[Tensor]")]
        for name in gradients:
            if name not in differentiable:
                self._fault(("backward", "gradients"), f"'{name}' is not one of the tensors {listed(differentiable)}.")
        return BackwardOperator(operator, dict(arguments), gradients)

    def _check_source(self, path: Path, source: Any, schema: torch.FunctionSchema, kinds: tuple[str, ...]) -> None:
        names = [argument.name for argument in schema.arguments]
        if source in names:
            return
        result = result_of(source)
        if result is None or result[0] not in kinds:
            self._fault(
                path, f"'{source}' is neither an argument of the operator ({listed(names)}) nor {listed(kinds)}."
            )
        elif result[1] >= len(schema.returns):
            self._fault(path, f"there is no '{source}': the operator returns {results(schema)}.")

    def _autocast(self, schema: torch.FunctionSchema) -> Policy | None:
        value = self._entry.get("autocast")
        if value is None:
            return None
        if value not in POLICIES:
            self._fault(("autocast",), f"'{value}' is no autocast policy; there are {listed(get_args(Policy))}.")
            return None
        if value != "fallthrough" and schemas.is_mutating(schema):
            self._fault(("autocast",), "an operator that writes to its arguments can only have 'fallthrough'.")
        return cast(Policy, value)

    def _reroute(self, schema: torch.FunctionSchema) -> tuple[str, ...]:
        value = self._entry.get("reroute")
        if value is None:
            return ()
        overloads = self._names(("reroute",), value)
        for overload in overloads:
            try:
                differences = schemas.differences(schemas.find(overload)._schema, schema)
            except ValueError as error:
                self._fault(("reroute",), str(error))
                continue
            if schemas.is_mutating(schema):
                differences.append("it writes to its arguments")
            if differences:
                self._fault(("reroute",), f"it cannot serve {overload}: {'; '.join(differences)}.")
        return overloads

    def _doc(self) -> str:
        value = self._entry.get("doc", "")
        if not isinstance(value, str):
            self._fault(("doc",), f"doc is a text, not {value!r}.")
            return ""
        return value.strip()

    # ---- what several keys need ----

    def _optional_function(self, key: str, schema: torch.FunctionSchema | None) -> Function | None:
        value = self._entry.get(key)
        return None if value is None else self._function((key,), value, schema)

    def _function(self, path: Path, value: Any, schema: torch.FunctionSchema | None) -> Function | None:
        """The function that ``value`` is or names. If ``schema`` is given, it has to take its arguments."""
        function = value if callable(value) else self._imported(path, value)
        if function is not None and schema is not None and not isinstance(function, Named):
            for misfit in schemas.misfits(function, schema):
                self._fault(path, f"{schemas.describe(function)} does not fit the schema: {misfit}.")
        return function

    def _imported(self, path: Path, value: Any) -> Function | None:
        if not isinstance(value, str) or not _FUNCTION.fullmatch(value):
            self._fault(path, f"{value!r} is no function; write module:function.")
            return None
        if not self._resolve:
            return Named(value)
        module, _, name = value.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except Exception as error:  # a module may fail as it likes
            self._fault(path, f"'{value}' cannot be imported: {type(error).__name__}: {_one_line(error)}")
            return None
        if not callable(found):
            self._fault(path, f"'{value}' is no function but {found!r}.")
            return None
        return cast(Function, found)

    def _names(self, path: Path, value: Any) -> tuple[str, ...]:
        names = (value,) if isinstance(value, str) else value
        if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
            self._fault(path, f"here has to be a name or a list of names, not {value!r}.")
            return ()
        return tuple(names)

    def _check_keys(self, path: Path, mapping: Mapping[Any, Any], known: Sequence[str]) -> None:
        for key in mapping:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f"did you mean '{near[0]}'?" if near else f"there are {listed(known)}."
                self._fault((*path, key), f"unknown key '{key}'; {hint}")

    def _fault(self, path: Path, message: str) -> None:
        self._faults.add((*self._path, *path), self._label, message)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
