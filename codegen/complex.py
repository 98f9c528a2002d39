"""Expressions for complex numbers, which are structs in kernels: operators and functions become calls."""

from __future__ import annotations

import ast
import re

_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_FUNCTIONS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_COMPARISONS = {ast.Eq: ("eq", "=="), ast.NotEq: ("ne", "!=")}
_JUNCTIONS = {ast.And: " && ", ast.Or: " || "}


def complex_text(expression: str) -> str:
    """The expression, of arguments that are complex, by the functions of codegen/kernels/preludes/complex.h."""
    return _value(_parsed(expression))


def _parsed(expression: str) -> ast.expr:
    choice = re.fullmatch(r"(.+?) \? (.+?) : (.+)", expression)
    if choice:
        return ast.IfExp(*map(_parsed, choice.groups()))
    return ast.parse(expression.replace("&&", "and").replace("||", "or"), mode="eval").body


def _is_complex(node: ast.expr) -> bool:
    """Else it is a real number: a constant, or the answer of a comparison."""
    if isinstance(node, ast.IfExp):
        return _is_complex(node.body) or _is_complex(node.orelse)
    if isinstance(node, ast.BinOp):
        return _is_complex(node.left) or _is_complex(node.right)
    if isinstance(node, ast.UnaryOp):
        return _is_complex(node.operand)
    return isinstance(node, ast.Name) or (isinstance(node, ast.Call) and ast.unparse(node.func) != "TC")


def _value(node: ast.expr) -> str:
    """As a complex number."""
    if not _is_complex(node):
        return f"tb_real({_plain(node)})"
    match node:
        case ast.Name():
            return node.id
        case ast.UnaryOp(op=ast.USub()):
            return f"tb_c_neg({_value(node.operand)})"
        case ast.BinOp() if type(node.op) in _FUNCTIONS:
            return f"tb_c_{_FUNCTIONS[type(node.op)]}({_value(node.left)}, {_value(node.right)})"
        case ast.IfExp():
            return f"({_plain(node.test)} ? {_value(node.body)} : {_value(node.orelse)})"
        case ast.Call():
            name = ast.unparse(node.func).removeprefix("tb_")
            return f"tb_c_{name}({', '.join(map(_value, node.args))})"
    raise ValueError(f"pointwise.yaml: {ast.unparse(node)} is nothing of complex numbers")


def _plain(node: ast.expr) -> str:
    """As a real number."""
    match node:
        case ast.BoolOp():
            return f"({_JUNCTIONS[type(node.op)].join(map(_plain, node.values))})"
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return f"({_plain(node.left)} {_OPERATORS[type(node.op)]} {_plain(node.right)})"
        case ast.Compare(ops=[comparison], comparators=[right]) if type(comparison) in _COMPARISONS:
            function, operator = _COMPARISONS[type(comparison)]
            if not _is_complex(node.left) and not _is_complex(right):
                return f"({_plain(node.left)} {operator} {_plain(right)})"
            return f"tb_c_{function}({_value(node.left)}, {_value(right)})"
        case ast.Constant() | ast.UnaryOp() | ast.Call():
            return ast.unparse(node)
    raise ValueError(f"pointwise.yaml: {ast.unparse(node)} is no real number")
