"""Failures by cause: what differs from case to case does not part them, and what says something else does."""

import pytest
from torch_conformance.causes import by_cause, cause
from torch_conformance.results import Result


def failure(message: str, test: str = "tensor/test_a.py::test_b", details: str = "", **facts: object) -> Result:
    return Result(test, "failed", message=message, details=details, facts=facts)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("NotImplementedError: Could not run 'aten::foo.bar' with arguments", "no kernel for aten::foo.bar"),
        (
            "NotImplementedError: Could not run 'aten::foo' with arguments from the 'SparseX' backend.",
            "no kernel for aten::foo of SparseX",
        ),
        ("Unexpected success", "PyTorch expects a failure, and the test passes"),
        ("AssertionError: Tensor-likes are not close!", "values differ"),
        ("the bias: element [0] is -1.5, not -2.37 (2 of 2 wrong)", "values differ"),
        ("add(float32[3]) has values that differ from the CPU's by more than rtol 0 and atol 0.", "values differ"),
        ("ModuleNotFoundError: No module named 'scipy.special'", "the module scipy.special is not installed"),
        ("AttributeError: module 'torch.acme' has no attribute 'get_rng_state'", "torch.acme has no get_rng_state"),
        ("DID NOT RAISE RuntimeError", "an error that the test expects is not raised"),
        ("ValueError: 17 is not 18 at 0x7f00", "ValueError: N is not N at N"),
        ("the device is not in tensor([2., 2.], grad_fn=<MulBackward0>)", "the device is not in tensor(...)"),
        ("the values are [0.0, [1]], not [0, 1]", "the values are [...], not [...]"),
        ("softmax of torch.bfloat16 gives float8_e4m3fn", "softmax of DTYPE gives DTYPE"),
        ("assert 3 == 4", "assert N == N in test_b"),
    ],
)
def test_a_message_without_what_is_particular(message: str, expected: str) -> None:
    assert cause(failure(message)) == expected


def test_names_of_the_case_are_left_out() -> None:
    messages = [("sum", "sum of a view is on cpu"), ("max-D2H", "max of a view is on cpu")]
    found = {cause(failure(message, f"tensor/test_a.py::test_b[{case}]")) for case, message in messages}
    assert found == {"CASE of a view is on cpu"}


def test_operators_are_left_out() -> None:
    messages = [("add", "add(float32[2, 3], 1, alpha=2) has the dtype 1"), ("nn.gelu", "nn.gelu(f[1]) has the dtype 2")]
    found = {cause(failure(message, op=op)) for op, message in messages}
    assert found == {"OPERATOR has the dtype N"}


def test_the_source_in_a_traceback_says_no_cause() -> None:
    assert cause(failure("it is wrong", details="    raise MyError('not raised')\nE   it is wrong")) == "it is wrong"
    assert cause(failure("it is wrong", details="E   RuntimeError: out of memory")) == "out of memory"


def test_the_most_frequent_cause_is_first() -> None:
    results = [failure("a"), failure("b 1"), failure("b 2"), Result("tensor/test_a.py::test_c", "passed")]
    assert [(text, len(of)) for text, of in by_cause(results)] == [("b N", 2), ("a", 1)]
