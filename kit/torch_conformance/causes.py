"""Why tests fail, in groups: hundreds of failures often have one cause."""

import re
from collections.abc import Iterable

from torch_conformance.results import FAILURES, Result

# (what a message holds, what that means); the first that matches. Groups of the pattern go into the text.
_CAUSES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), text)
    for pattern, text in (
        (r"could not run '(\w+::[\w.]+)' with arguments from the '(\w+)'", "no kernel for {0} of {1}"),
        (r"could not run '(\w+::[\w.]+)'", "no kernel for {0}"),
        (r"'(aten::[\w.]+)' .*(?:not implemented|fallback policy|may not run on the CPU)", "no kernel for {0}"),
        (r"\"(\w+)\" not implemented for '(\w+)'", "the CPU kernel {0} has no {1}"),
        (r"unexpected success", "PyTorch expects a failure, and the test passes"),
        (r"(?:tensor-likes|scalars) are not (?:close|equal)|has values that differ from the CPU's", "values differ"),
        (r"element \S+ is \S+, not \S+ \(\d+ of \d+ wrong\)", "values differ"),
        (r"did not raise|not raised", "an error that the test expects is not raised"),
        (r"does not match \"|regex pattern did not match", "an error has another text than the test expects"),
        (r"torch not compiled with cuda|cuda driver|no cuda gpus", "the test asks for CUDA by name"),
        (r"no module named '([\w.]+)'", "the module {0} is not installed"),
        (r"expected all tensors to be on the same device", "tensors are on two devices"),
        (r"the attributes? '(\w+)' .* do not match|the values for attribute '(\w+)' do not match", "{0} differs"),
        (r"(?:module|type object) '([\w.]+)' has no attribute '(\w+)'", "{0} has no {1}"),
        (r"'(\w+)' object has no attribute '(\w+)'", "{0} has no {1}"),
        (r"out of memory", "out of memory"),
    )
)

_DTYPE = r"(?:torch\.)?\b(?:bfloat16|float\d+\w*|complex\d+|u?int\d+|q?u?int\d+x?\w*|bool)\b"
_NUMBER = r"(?<![\w.])[-+]?(?:0x[0-9a-f]+|\d+(?:\.\d*)?(?:e[-+]?\d+)?j?|nan|inf)\b\.?(?![\w.])"

# What differs between messages that say the same, in this order, and what stands for it. Values come before the case's
# names, which may be part of them, and numbers after these.
_VALUES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\(lambda .*?(?=: on the CPU)"), "CODE"),
    (re.compile(r"\b(?:\w+_)?tensor\(.*|\bParameter containing:.*"), "tensor(...)"),  # they go on in other lines
    (re.compile(r"<[^<>]*>"), "<...>"),
    (re.compile(r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|\[\[.*"), "[...]"),
    (re.compile(_DTYPE), "DTYPE"),
)
_NUMBERS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(_NUMBER, re.IGNORECASE), "N"),
    (re.compile(r"0x[0-9a-f]+|\d+"), "N"),
)


def by_cause(results: Iterable[Result]) -> list[tuple[str, list[Result]]]:
    """The failures by cause, the most frequent first."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if result.outcome in FAILURES:
            found.setdefault(cause(result), []).append(result)
    return sorted(found.items(), key=lambda entry: -len(entry[1]))


def cause(result: Result) -> str:
    """The cause of a failed test, short and the same for tests that fail alike."""
    if result.outcome == "hung":
        return "hung"
    if result.outcome == "crashed":
        return result.message.partition(", in ")[0]  # wherever that was
    errors = "\n".join(line for line in result.details.splitlines() if line.startswith("E "))
    for text in (result.message, errors):
        for pattern, meaning in _CAUSES:
            if match := pattern.search(text):
                return meaning.format(*(group for group in match.groups() if group is not None))
    return _general(result) or "no message"


def _general(result: Result) -> str:
    """The message without what is particular to the test's case: numbers, values, dtypes, and the case's names."""
    text = _without_operator(result.message, str(result.facts.get("op", "")))
    for pattern, general in _VALUES:
        text = pattern.sub(general, text)
    text = _without_names(text, result.test)
    for pattern, general in _NUMBERS:
        text = pattern.sub(general, text)
    # Such a message is the test's code: without the test it says nothing.
    return f"{text} in {_function(result.test)}" if text.startswith("assert ") else text


def _without_operator(text: str, operator: str) -> str:
    if not operator:
        return text
    call = re.match(rf"{re.escape(operator)}\(.*?\)(?=:|,| [a-z])", text)
    return f"OPERATOR{text[call.end() :]}" if call else re.sub(rf"\b{re.escape(operator)}\b", "OPERATOR", text)


def _without_names(text: str, test: str) -> str:
    case = test.partition("[")[2].removesuffix("]")
    names = {name for name in (*case.split("-"), case) if len(name) > 1 and not name.isdigit()} - {"tensor"}
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "CASE", text)
    return text


def _function(test: str) -> str:
    return test.partition("[")[0].rpartition("::")[2]
