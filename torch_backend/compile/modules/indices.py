"""Indices, which inductor has as sympy's expressions, in the dialect of codegen/kernels."""
# ruff: noqa: D107

from collections.abc import Mapping

import sympy
from torch.utils._sympy.printers import ExprPrinter


class IndexPrinter(ExprPrinter):
    """Whole numbers; what is no less than zero is divided as C does. ``names`` stand in place of symbols."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.names = names or {}

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        return self.names.get(expr.name, expr.name)

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        x, divisor = expr.args
        x_text, divisor_text = self.doprint(x), self.doprint(divisor)
        if x.is_nonnegative and divisor.is_positive:
            return f"(({x_text}) / ({divisor_text}))"
        return f"tb_floor_quotient({x_text}, {divisor_text})"

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:
        x, divisor, modulus = expr.args
        text = f"({self.doprint(x)})"
        if divisor != 1:
            text = f"({text} / ({self.doprint(divisor)}))"
        return f"({text} % ({self.doprint(modulus)}))"

    def _print_Mod(self, expr: sympy.Expr) -> str:
        return f"tb_modulo({self.doprint(expr.args[0])}, {self.doprint(expr.args[1])})"

    _print_PythonMod = _print_Mod

    def _print_CleanDiv(self, expr: sympy.Expr) -> str:
        return self._print_FloorDiv(expr)

    def _choose(self, expr: sympy.Expr, sign: str) -> str:
        texts = [f"(i64)({self.doprint(each)})" for each in expr.args]
        result = texts[0]
        for text in texts[1:]:
            result = f"({result} {sign} {text} ? {result} : {text})"
        return result

    def _print_Min(self, expr: sympy.Expr) -> str:
        return self._choose(expr, "<")

    def _print_Max(self, expr: sympy.Expr) -> str:
        return self._choose(expr, ">")

    def _print_Where(self, expr: sympy.Expr) -> str:
        condition, x, y = (self.doprint(each) for each in expr.args)
        return f"(({condition}) ? ({x}) : ({y}))"

    def _print_PowByNatural(self, expr: sympy.Expr) -> str:
        return f"tb_power({self.doprint(expr.args[0])}, {self.doprint(expr.args[1])})"

    def _print_Pow(self, expr: sympy.Expr) -> str:
        base, exponent = expr.args
        if exponent.is_Integer and exponent > 0:
            return "(" + " * ".join([f"({self.doprint(base)})"] * int(exponent)) + ")"
        return f"pow((T)({self.doprint(base)}), (T)({self.doprint(exponent)}))"

    def _print_Abs(self, expr: sympy.Expr) -> str:
        text = self.doprint(expr.args[0])
        return f"(({text}) < 0 ? -({text}) : ({text}))"

    def _print_ToFloat(self, expr: sympy.Expr) -> str:
        return f"(T)({self.doprint(expr.args[0])})"

    def _print_IntTrueDiv(self, expr: sympy.Expr) -> str:
        return f"((T)({self.doprint(expr.args[0])}) / (T)({self.doprint(expr.args[1])}))"

    _print_FloatTrueDiv = _print_IntTrueDiv

    def _print_TruncToInt(self, expr: sympy.Expr) -> str:
        return f"(i64)trunc((T)({self.doprint(expr.args[0])}))"

    def _print_FloorToInt(self, expr: sympy.Expr) -> str:
        return f"(i64)floor((T)({self.doprint(expr.args[0])}))"

    _print_floor = _print_FloorToInt

    def _print_CeilToInt(self, expr: sympy.Expr) -> str:
        return f"(i64)ceil((T)({self.doprint(expr.args[0])}))"

    _print_ceiling = _print_CeilToInt

    def _print_RoundToInt(self, expr: sympy.Expr) -> str:
        return f"(i64)rint((T)({self.doprint(expr.args[0])}))"

    def _print_OpaqueUnaryFn_sqrt(self, expr: sympy.Expr) -> str:
        return f"sqrt((T)({self.doprint(expr.args[0])}))"

    def _print_Float(self, expr: sympy.Expr) -> str:
        return str(int(expr)) if expr.is_integer else f"TC({float(expr)!r})"


class ValuePrinter(IndexPrinter):
    """Indices that are values: in 64 bits, though offsets may need but 32."""

    def _print_Symbol(self, expr: sympy.Symbol) -> str:
        return f"((i64){super()._print_Symbol(expr)})"
