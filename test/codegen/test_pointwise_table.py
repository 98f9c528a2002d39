"""The table of elementwise operators fits the installed torch."""

import pytest

from codegen import kernel_texts, missing, parse
from codegen.complex import complex_text


@pytest.fixture(scope="module")
def functions():
    return parse.native_functions()[0]


def test_every_elementwise_operator_has_a_kernel_or_a_reason(functions):
    without = [name for name, reason in missing.reasons(functions).items() if reason is None]
    assert not without, "add them to codegen/kernels/pointwise.yaml, or under `missing` there with the reason"


def test_every_reason_is_about_an_operator(functions):
    assert missing.unused_reasons(functions) == []


def test_entries_are_of_operators_that_exist(functions):
    names = {str(function.func.name) for function in functions}
    assert set(kernel_texts.pointwise_table()) - names == set()


def test_an_entry_has_the_functions_that_it_calls(functions):
    entries = {entry.overload: entry for entry in kernel_texts.pointwise_entries(functions)}
    clamp, add = entries["aten::clamp.out"], entries["aten::add.out"]
    assert (clamp.floating_texts, clamp.integral_texts) == ("floating", "integral")
    assert (add.floating_texts, add.integral_texts) == ("", "")
    assert entries["aten::special_i1.out"].floating_texts == "bessel"


def test_an_unknown_function_is_refused(functions):
    by_name = {str(function.func.name): function for function in functions}
    with pytest.raises(ValueError, match="there is no tb_unheard_of"):
        kernel_texts.entry(by_name["neg.out"], None, "tb_unheard_of(self)")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("self + alpha * other", "tb_c_add(self, tb_c_mul(alpha, other))"),
        ("TC(1.0) / sqrt(-self)", "tb_c_div(tb_real(TC(1.0)), tb_c_sqrt(tb_c_neg(self)))"),
        ("mask != 0 ? value : self", "(tb_c_ne(mask, tb_real(0)) ? value : self)"),
        ("self != 0 && other != 0", "tb_real((tb_c_ne(self, tb_real(0)) && tb_c_ne(other, tb_real(0))))"),
        ("tb_lerp(self, end, 2)", "tb_c_lerp(self, end, tb_real(2))"),
    ],
)
def test_expressions_of_complex_numbers_are_calls(expression, text):
    assert complex_text(expression) == text


@pytest.mark.parametrize("expression", ["self < other", "self % other", "tb_unheard_of(self)"])
def test_what_complex_numbers_have_not_is_refused(functions, expression):
    by_name = {str(function.func.name): function for function in functions}
    with pytest.raises(ValueError, match="pointwise"):
        kernel_texts.entry(by_name["add.out"], None, {"complex": expression})
