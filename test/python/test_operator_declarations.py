"""Declarations of operators that are wrong, and the stubs of those that are right."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fixtures import RunPython

import torch_backend
from torch_backend.__main__ import main
from torch_backend.custom_ops import DeclarationError

pytest.importorskip("yaml")

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_operator"

FAULTY = """\
- func: "acme::a(Tensor x) -> Tensor"
  kernels: math:sqrt
  meta: {like: y, shape: 3}

- func: "acme::b(Tensor x -> Tensor"
  kernel: math:sqrt
- func: "acme::c(Tensor x, Tensor y) -> Tensor"
  kernel: math:sqrt_
  meta: nowhere_to_be_found:meta
  autocast: fp8
  reroute: [aten::add.Tensor, aten::nope]
- func: "acme::d(Tensor x) -> Tensor"
  kernel: math:sqrt
  meta: {like: x}
  backward: {operator: acme::e, gradients: [x], arguments: {g: grad, h: grod}}
- func: "acme::e(Tensor g) -> Tensor"
  kernel: math:sqrt
  kernel: math:sqrt
  meta: {like: g}
  backward: {operator: acme::d, gradients: [g]}
- just a text
"""

FAULTS = [
    ":1: acme::a: there is no kernel: write kernel: module:function, or kernel: plugin.",
    ":2: acme::a: unknown key 'kernels'; did you mean 'kernel'?",
    ":3: acme::a: 'y' is not one of the tensors x.",
    ":3: acme::a: unknown key 'shape'; there are like, dtype.",
    ":5: acme::b: the schema is wrong: expected ) but found 'arrow'",
    ":8: acme::c: 'math:sqrt_' cannot be imported: AttributeError",
    ":9: acme::c: 'nowhere_to_be_found:meta' cannot be imported: ModuleNotFoundError",
    ":10: acme::c: 'fp8' is no autocast policy; there are lower_precision_fp, fp32, promote, fallthrough.",
    ":11: acme::c: it cannot serve aten::add.Tensor: aten::add has 3 arguments, acme::c has 2.",
    ":11: acme::c: There is no operator 'aten::nope'",
    ":15: acme::d: 'grod' is neither an argument of the operator (x) nor grad, output.",
    ":15: acme::d: acme::e has no argument 'h'; it has g.",
    ":15: acme::d: its backward comes back to itself: acme::d -> acme::e -> acme::d.",
    ":18: the key 'kernel' is there twice.",
    ":20: acme::e: nothing is given to 'x' of acme::d",
    ":20: acme::e: its backward comes back to itself: acme::e -> acme::d -> acme::e.",
    ":21: entry 6: an operator is a mapping with the keys func, kernel,",
]


def test_all_faults_at_once(tmp_path: Path) -> None:
    file = tmp_path / "ops.yaml"
    file.write_text(FAULTY)
    with pytest.raises(DeclarationError) as raised:
        torch_backend.load_operators(file)
    message = str(raised.value)
    missing = [fault for fault in FAULTS if f"{file}{fault}" not in message]
    assert not missing, message
    assert len(raised.value.faults) == len(FAULTS), message
    assert message.startswith(f"{len(FAULTS)} faults in the declaration of operators:\n")


OP: dict[str, Any] = {"func": "acme::f(Tensor x) -> Tensor", "kernel": lambda x: x, "meta": {"like": "x"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"func": None}, "there is no schema: write func"),
        ({"func": "f(Tensor x) -> Tensor"}, "'f' is no name for an operator; write namespace::name"),
        ({"func": "acme::f"}, "the schema is wrong: .*only the operator name was given"),
        ({"func": "acme::f(Tensr x) -> Tensor"}, "the schema is wrong: unknown type specifier"),
        ({"func": "acme::f(Tensor lambda) -> Tensor"}, "the argument 'lambda' is not possible in Python"),
        ({"func": "aten::f(Tensor x) -> Tensor"}, "the namespace 'aten' is not free"),
        ({"func": "acme::lambda(Tensor x) -> Tensor"}, "the name is a keyword of Python"),
        ({"func": "acme::f(Tensor(a!) x) -> Tensor(a!)"}, "a result that is an argument is not possible"),
        ({"kernel": 3}, "3 is no function; write module:function"),
        ({"kernel": "math.sqrt"}, "'math.sqrt' is no function; write module:function"),
        ({"kernel": "math:pi"}, "'math:pi' is no function but 3.14"),
        ({"kernel": lambda x, y: x}, "does not fit the schema: the operator has no argument 'y'"),
        ({"meta": None}, "there is no meta: write meta: module:function, or a rule"),
        ({"meta": {"like": ["x", "x"]}}, "the rule names 2 tensors, the operator returns Tensor"),
        ({"meta": {"like": "x", "dtype": "float33"}}, "'float33' is no dtype"),
        ({"meta": {"like": 3}}, "here has to be a name or a list of names, not 3"),
        ({"meta": lambda: None}, "does not fit the schema: it takes 0 positional arguments"),
        ({"backward": {"function": lambda ctx, g: g, "save": ["y"]}}, "'y' is neither an argument"),
        ({"backward": {"function": lambda ctx, g: g, "save": ["output.1"]}}, "there is no 'output.1'"),
        ({"backward": {"function": lambda ctx, g: g, "keep": ["x"]}}, "unknown key 'keep'"),
        ({"backward": {"operator": "acme::g", "gradients": []}}, "'acme::g' in torch .* has to be declared too"),
        ({"backward": {"operator": "aten::sin", "gradients": []}}, "there are 0 of them, but aten::sin returns Tensor"),
        ({"backward": {"operator": "aten::sin", "gradients": "y"}}, "'y' is not one of the tensors x"),
        ({"backward": {"operator": "acme::f", "gradients": "x"}}, "comes back to itself: acme::f -> acme::f"),
        (
            {"backward": {"operator": "aten::add.Tensor", "arguments": {"self": "x", "other": 1}, "gradients": "x"}},
            "'1' is neither an argument of the operator .x. nor grad, output",
        ),
        (
            {
                "func": "acme::f(Tensor x, int n) -> Tensor",
                "kernel": lambda x, n: x,
                "meta": {"like": "x"},
                "backward": {"operator": "aten::sin", "arguments": {"self": "n"}, "gradients": "x"},
            },
            "'self' of aten::sin is a Tensor, 'n' a int",
        ),
        (
            {"func": "acme::f(Tensor(a!) x) -> ()", "backward": "math:sqrt"},
            "writes to its arguments can have no backward",
        ),
        ({"func": "acme::f(Tensor(a!) x) -> ()", "autocast": "fp32"}, "can only have 'fallthrough'"),
        ({"func": "acme::f(*, Tensor x) -> Tensor", "backward": "math:sqrt"}, "tensor that is keyword-only"),
        ({"reroute": "aten::gelu"}, "it cannot serve aten::gelu: aten::gelu has 2 arguments, acme::f has 1"),
        ({"doc": 3}, "doc is a text, not 3"),
    ],
)
def test_fault(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        torch_backend.load_operators({**OP, **change})


def test_faults_between_operators() -> None:
    with pytest.raises(DeclarationError, match="acme::f: it is declared twice"):
        torch_backend.load_operators([OP, OP])
    with pytest.raises(DeclarationError, match="there are no operators"):
        torch_backend.load_operators([])


@pytest.mark.parametrize(
    ("text", "message"), [("- func: [\n", "ops.yaml:2: not YAML: "), ("", "the entry: an operator is")]
)
def test_not_a_list_of_operators(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "ops.yaml"
    file.write_text(text)
    with pytest.raises(DeclarationError, match=message):
        torch_backend.load_operators(file)


def test_without_pyyaml(run_python: RunPython) -> None:
    process = run_python(
        """
        import sys
        sys.modules["yaml"] = None
        import torch_backend
        torch_backend.define_operator("acme::f(Tensor x) -> Tensor", kernel=lambda x: x, meta={"like": "x"})
        try:
            torch_backend.load_operators("ops.yaml")
        except ImportError as error:
            print(error)
        """
    )
    assert "Reading ops.yaml needs pyyaml. Install it with: pip install 'torch_backend[yaml]'" in process.stdout


# ---- the example, and stubs ----


def test_example(run_python: RunPython) -> None:
    process = run_python("import rotate; rotate.main()", packages=[EXAMPLE])
    lines = process.stdout.splitlines()
    assert lines == [
        "rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor",
        "a rotation keeps lengths: True",
        "dtype under autocast: torch.float32",
        "compiled, it is the same: True",
        lines[4],
    ]
    error = re.fullmatch(
        r"<reroute aten::gelu -> acme::fast_gelu, disabled>: off by (.*) while it was enabled", lines[4]
    )
    assert error is not None
    assert 0 < float(error.group(1)) <= 0.021


def test_stubs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stub = tmp_path / "acme_ops.pyi"
    assert main(["stubs", str(EXAMPLE / "ops.yaml"), "-o", str(stub)]) == 0
    assert capsys.readouterr().out == ""
    assert "def fast_gelu(x: torch.Tensor, *, approximate: str = 'none') -> torch.Tensor:" in stub.read_text()
    assert main(["stubs", str(EXAMPLE / "ops.yaml")]) == 0
    assert capsys.readouterr().out == stub.read_text()


def test_mypy_accepts_stubs_and_finds_wrong_calls(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "ops.yaml").write_text(
        """\
- func: "acme::everything(Tensor x, Tensor? y, Tensor[] l, int[] s, ScalarType? d=None, Scalar k=1, *, float e=1e-5,
    str m='tanh', Device? dev=None, Generator? g=None) -> (Tensor, Tensor[])"
  kernel: not_there:everything
  meta: not_there:meta
  doc: 'One "line" with \\ and \"\"\".'
- {func: "acme::over(Tensor x) -> Tensor", kernel: plugin, meta: {like: x}}
- {func: "acme::over.number(float x) -> float", kernel: plugin, meta: not_there:meta, doc: "Two\\n\\nlines."}
- {func: "acme::bump(Tensor(a!) x) -> ()", kernel: plugin}
"""
    )
    stub = tmp_path / "acme_ops.pyi"
    assert main(["stubs", str(tmp_path / "ops.yaml"), "-o", str(stub)]) == 0
    # As much of torch as is named: mypy takes minutes for all of it.
    (tmp_path / "torch.pyi").write_text(
        "class Tensor: ...\nclass dtype: ...\nclass device: ...\nclass Generator: ...\nfloat32: dtype\n"
        "def ones(size: int) -> Tensor: ...\n"
    )
    (tmp_path / "right.py").write_text(
        "import torch\nimport acme_ops\nx = torch.ones(1)\n"
        "a, b = acme_ops.everything(x, None, [x], [1, 2], torch.float32, 2.5, m='none')\n"
        "c: float = acme_ops.over(1.0)\nd: torch.Tensor = acme_ops.over(x)\nacme_ops.bump(x)\n"
    )
    (tmp_path / "wrong.py").write_text("import acme_ops\nacme_ops.over('text')\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    mypy = subprocess.run([*command, "right.py", "acme_ops.pyi"], cwd=tmp_path, capture_output=True, text=True)
    assert (mypy.returncode, mypy.stdout) == (0, "")
    mypy = subprocess.run([*command, "wrong.py"], cwd=tmp_path, capture_output=True, text=True)
    assert "No overload variant" in mypy.stdout


def test_stubs_of_what_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ops.yaml"
    file.write_text(
        '- {func: "a::f(Tensor x) -> Tensor", kernel: plugin, meta: {like: x}}\n'
        '- {func: "b::f(Tensor x) -> Tensor", kernel: plugin, meta: {like: x}}\n'
    )
    assert main(["stubs", str(file)]) == 1
    assert "these are a, b. Write one stub file for each" in capsys.readouterr().err
    file.write_text("- {func: 3}\n")
    assert main(["stubs", str(file)]) == 1
    assert f"{file}:1: entry 1: there is no schema" in capsys.readouterr().err
    assert main(["stubs", str(tmp_path / "absent.yaml")]) == 1
    assert "No such file" in capsys.readouterr().err
