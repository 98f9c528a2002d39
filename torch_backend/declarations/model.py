"""One operator overload's declaration, the table of all, and their JSON form."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, cast, get_args

Requirement = Literal["must", "may", "need not"]
"""Whether a device has to bring a kernel: "must", nothing else can run the operator; "may", it runs without, and a
kernel makes it faster; "need not", other operators' kernels are all it takes, or no program on the device calls it."""

Reason = Literal[
    "fallback",
    "memory",
    "view",
    "overrideable",
    "no kernel",
    "default",
    "cpu",
    "composite",
    "structured",
    "generated",
    "layout",
    "library",
    "subclass",
]

REASONS: Mapping[Reason, str] = {
    "fallback": "the CPU fallback is made of it",
    "memory": "it decides what memory a tensor has",
    "view": "its result shares the argument's memory, which a result from the CPU cannot",
    "overrideable": "PyTorch's default only raises",
    "no kernel": "PyTorch has no default and no CPU kernel",
    "default": "PyTorch's default is made of other operators",
    "cpu": "the CPU fallback can run it",
    "composite": "it is made of other operators on every device",
    "structured": "PyTorch makes it from the out form",
    "generated": "PyTorch makes it from another form",
    "layout": "only for sparse, quantized, nested or MKL-DNN tensors",
    "library": "named after another device's library, and called for that device only",
    "subclass": "no device has a kernel: a tensor subclass serves it",
}
"""Why a requirement is what it is."""

FORMAT = 1


@dataclass(frozen=True)
class Declaration:
    """One overload.

    Attributes:
        op: namespace, name and overload, "aten::add.Tensor".
        schema: PyTorch's, with the name.
        dispatch: the dispatch keys for which ATen has a kernel, sorted.
        default: whether PyTorch has a kernel for devices that bring none; it may only raise (see ``reason``).
        structured: whether this is the out form of a structured operator: its kernel serves the other forms too.
        structured_delegate: for these other forms, the out form.
        requirement: whether a device has to bring a kernel.
        reason: why, a key of :data:`REASONS`.
        cpp: the C++ signature of a kernel for ``m.impl``, "at::Tensor abs(const at::Tensor & self)"; "" in a file that
            was written before there was this.
    """

    op: str
    schema: str
    dispatch: tuple[str, ...]
    default: bool
    structured: bool
    structured_delegate: str | None
    requirement: Requirement
    reason: Reason
    cpp: str = ""


@dataclass(frozen=True)
class Declarations:
    """Every overload of one version of torch, by name; sorted. ``torch`` is the version, None where it is unknown."""

    torch: str | None
    operators: Mapping[str, Declaration]

    def __getitem__(self, op: str) -> Declaration:
        """The declaration of ``op``; KeyError if this torch has no such overload."""
        return self.operators[op]

    def __contains__(self, op: object) -> bool:
        """Whether this torch has the overload."""
        return op in self.operators

    def __iter__(self) -> Iterator[Declaration]:
        """The declarations."""
        return iter(self.operators.values())

    def __len__(self) -> int:
        """Number of overloads."""
        return len(self.operators)

    def required(self, requirement: Requirement) -> frozenset[str]:
        """The overloads with one requirement."""
        return frozenset(declaration.op for declaration in self if declaration.requirement == requirement)

    def counts(self) -> dict[Requirement, int]:
        """Number of overloads by requirement; every requirement is there."""
        return {requirement: len(self.required(requirement)) for requirement in get_args(Requirement)}

    def to_json(self) -> dict[str, Any]:
        """A value for the json module.

        ``{"format": 1, "torch": "2.13.0", "operators": [{"op": ..., "schema": ..., ...}, ...]}`` with the attributes of
        :class:`Declaration`. A change that readers would stumble over gets another format number.
        """
        return {"format": FORMAT, "torch": self.torch, "operators": [asdict(declaration) for declaration in self]}

    @classmethod
    def from_json(cls, value: object) -> "Declarations":
        """The inverse of :meth:`to_json`; also takes keys it does not know. Raises ValueError for anything else."""
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            found = value.get("format", "none") if isinstance(value, dict) else "none"
            raise ValueError(
                f"It has format {found}, expected {FORMAT}: write it with `torch-backend ops --declarations --json`."
            )
        try:
            declarations = [_declaration(entry) for entry in value["operators"]]
        except (KeyError, TypeError) as error:
            raise ValueError(
                f'An entry of "operators" is not a declaration: {type(error).__name__}: {error}.'
            ) from None
        return cls.of(value.get("torch"), declarations)

    @classmethod
    def of(cls, torch: str | None, declarations: list[Declaration]) -> "Declarations":
        """The table of ``declarations``."""
        return cls(torch, {entry.op: entry for entry in sorted(declarations, key=lambda entry: entry.op)})


def _declaration(entry: Mapping[str, Any]) -> Declaration:
    values = {field.name: entry[field.name] for field in fields(Declaration) if field.name != "cpp"}
    values["cpp"] = entry.get("cpp", "")
    if values["requirement"] not in get_args(Requirement):
        raise ValueError(
            f"The requirement of {values['op']} is {values['requirement']!r}; expected one of "
            f"{', '.join(map(repr, get_args(Requirement)))}."
        )
    return Declaration(**(values | {"dispatch": tuple(cast("list[str]", values["dispatch"]))}))
