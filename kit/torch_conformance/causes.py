"""Why tests fail, in groups: hundreds of failures often have one cause."""

import re

from torch_conformance.results import Result

# (what a message holds, what that means); the first that matches. Groups of the pattern go into the text.
_CAUSES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), text)
    for pattern, text in (
        (r"could not run '(aten::[\w.]+)'", "no kernel for {0}"),
        (r"'(aten::[\w.]+)' .*(?:not implemented|fallback policy|may not run on the CPU)", "no kernel for {0}"),
        (r"\"(\w+)\" not implemented for '(\w+)'", "the CPU kernel {0} has no {1}"),
        (r"unexpected success", "PyTorch expects a failure, and the test passes"),
        (r"tensor-likes are not (?:close|equal)|scalars are not (?:close|equal)", "values differ"),
        (r"not raised", "an error that the test expects is not raised"),
        (r"does not match \"", "an error has another text than the test expects"),
        (r"torch not compiled with cuda|cuda driver|no cuda gpus", "the test asks for CUDA by name"),
        (r"no module named '([\w.]+)'", "the module {0} is not installed"),
        (r"expected all tensors to be on the same device", "tensors are on two devices"),
        (r"the attributes? '(\w+)' .* do not match|the values for attribute '(\w+)' do not match", "{0} differs"),
        (r"has no attribute '(\w+)'", "the attribute {0} is missing"),
        (r"out of memory", "out of memory"),
    )
)


def cause(result: Result) -> str:
    """The cause of a failed test, short and the same for tests that fail alike."""
    if result.outcome == "hung":
        return "hung"
    if result.outcome == "crashed":
        return result.message.partition(", in ")[0]  # wherever that was
    for text in (result.message, result.details):
        for pattern, meaning in _CAUSES:
            if match := pattern.search(text):
                return meaning.format(*(group for group in match.groups() if group is not None))
    return re.sub(r"0x[0-9a-f]+|\d+", "N", result.message) or "no message"
