"""What changes between two versions of torch, found in two made-up ones, and where it concerns made-up sources."""

import json
import sys
import zipfile
from pathlib import Path

import pytest
import torchgen

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from codegen.drift import __main__ as command  # noqa: E402
from codegen.drift import compare, wheels  # noqa: E402
from codegen.drift.headers import Headers  # noqa: E402
from codegen.drift.modules import Modules  # noqa: E402
from codegen.drift.uses import Sources  # noqa: E402
from torch_backend.declarations import Declaration, Declarations  # noqa: E402

HOOKS = """
namespace at {
struct Base { virtual ~Base() = default; virtual void reset() const { if (true) { return; } } };
struct TORCH_API Hooks : Base { // struct Hooks { virtual void commented(); };
  [[nodiscard]] virtual bool has(int64_t index, Map<int, int> map = {}) const = 0;
  /* virtual void old(); */
  C10_NODISCARD virtual c10::Device device(
      c10::DeviceIndex index = -1) { return {}; }
  void plain();%s
};
}
"""
OURS = """
#include <ATen/Hooks.h>
#include <ATen/Gone.h>
#if __has_include(<ATen/New.h>)
#include <ATen/New.h>
#endif

class OurHooks final : public at::Hooks {
  bool has(int64_t index, Map<int, int> map) const override;
  void removed_later() override;
  at::OldName value;  // at::Commented
};
"""


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def headers(tmp_path):
    """Headers of two versions, as functions of their files."""
    versions = iter(range(10))
    return lambda **files: Headers(
        write(tmp_path / str(next(versions)), {f"ATen/{name}.h": text for name, text in files.items()}),
        frozenset({"ATen/Hooks.h", "ATen/Gone.h", "ATen/New.h"}),
    )


@pytest.fixture
def sources(tmp_path):
    return Sources(write(tmp_path / "ours", {"csrc/Ours.cpp": OURS}))


def seen(findings):
    return {(finding.change, finding.what): [str(use) for use in finding.uses] for finding in findings}


def test_virtual_functions(headers, sources):
    old = headers(Hooks=HOOKS % "\n  virtual void removed_later() {}\n  virtual void never_ours();")
    new = headers(
        Hooks=HOOKS.replace("Map<int, int> map = {}", "Map<int, long> renamed = {}").replace("index = -1", "other = 7")
        % "\n  virtual void needed() const = 0;\n  virtual int more() { return 1; }"
    )
    assert old.virtuals("Hooks").keys() >= {"reset() const", "device(c10::DeviceIndex)", "removed_later()"}
    found = list(compare.virtuals(old, new, sources))
    assert seen(found) == {
        ("removed", "Hooks::has(int64_t, Map<int,int>) const"): ["csrc/Ours.cpp:9"],
        ("added", "Hooks::has(int64_t, Map<int,long>) const"): ["csrc/Ours.cpp:9"],
        ("removed", "Hooks::removed_later()"): ["csrc/Ours.cpp:10"],
        ("removed", "Hooks::never_ours()"): [],
        ("added", "Hooks::needed() const"): ["csrc/Ours.cpp:8"],
        ("added", "Hooks::more()"): ["csrc/Ours.cpp:8"],
    }
    details = {finding.what: finding.detail for finding in found}
    assert "has to be implemented" in details["Hooks::needed() const"]
    assert "may be overridden" in details["Hooks::more()"]


def test_a_class_that_goes(headers, sources):
    (found,) = compare.virtuals(headers(Hooks=HOOKS % ""), headers(Hooks=""), sources)
    assert (found.change, found.what, found.detail) == ("removed", "Hooks", "the whole class")


def test_headers_and_guards(headers, sources):
    old, new = headers(Hooks="", Gone=""), headers(Hooks="", New="")
    found = {finding.what: finding for finding in compare.includes(old, new, sources)}
    assert {name: (f.change, f.guarded, str(f.uses[0])) for name, f in found.items()} == {
        "ATen/Gone.h": ("removed", False, "csrc/Ours.cpp:3"),
        "ATen/New.h": ("added", True, "csrc/Ours.cpp:5"),
    }


def test_names_of_what_is_included(headers, sources):
    old = headers(Hooks='#include <ATen/Far.h>\n#include "Near.h"', Far="struct OldName;", Near="struct Commented;")
    new = headers(Hooks="// OldName", Unrelated="struct OldName;")
    assert seen(compare.names(old, new, sources)) == {("removed", "OldName"): ["csrc/Ours.cpp:11"]}


def test_dispatch_stubs(headers, sources):
    old = headers(Stubs="DECLARE_DISPATCH(void (*)(Tensor, f(int)), a_stub)\nDECLARE_DISPATCH(fn, gone_stub)")
    new = headers(Stubs="#define DECLARE_DISPATCH(fn, name) x\nDECLARE_DISPATCH(\n    void (*)(Tensor), a_stub)")
    changes = {f.what: (f.change, f.detail) for f in compare.stubs(old, new, sources)}
    assert changes == {
        "a_stub": ("changed", "void (*)(Tensor, f(int)) -> void (*)(Tensor)"),
        "gone_stub": ("removed", "fn"),
    }


def test_autocast_lists(headers, tmp_path):
    lists = "#define AT_FORALL_FP32(_) \\\n  _(acos) \\\n%s  _(norm, dim)\n#define AT_FORALL_OTHER(_) \\\n  _(acos)\n"
    different = "#define AT_FORALL_DIFFERENT(_) \\\n  _(ADD_NS(norm), \\\n norm, Tensor(const Tensor&), fp32)\n"
    old, new = headers(autocast_mode=lists % "  _(sinh) \\\n"), headers(autocast_mode=lists % "" + different)
    ours = Sources(write(tmp_path / "autocast", {"csrc/A.cpp": "AT_FORALL_FP32(X)"}))
    assert seen(compare.autocast(old, new, ours))["removed", "sinh"] == ["csrc/A.cpp:1"]
    assert old.autocast() == {"FP32": {"acos", "sinh", "norm.dim"}, "OTHER": {"acos"}}


def test_python_names(tmp_path):
    ours = """
import torch
import torch._inductor.config as config
from torch._C import gone, kept
def f():
    from torch.more import starred
    return torch._private.function(1), config.knob, torch.public(2), torch._private.Class.method
"""
    seams = (ROOT / "torch_backend" / "compile" / "seams.py").read_text().split("\nCOMPILE_FX")[0]
    seams += '\nHERE = Seam("torch._private", "function", "", ("a",))'
    seams += '\nTHERE = (Seam("torch._private", "seam", "", ("a",)),)\n'
    files = {"torch_backend/ours.py": ours, "torch_backend/compile/seams.py": seams}
    common = {
        "torch/__init__.py": "from torch.more import *\nfrom . import _private",
        "torch/_inductor/config.py": "if True:\n    knob: int = 1",
        "torch/more.py": "from .other import starred\ndef public(x): ...",
        "torch/other.py": "try:\n    starred = other = 1\nexcept ImportError:\n    pass",
    }
    private = "def function(a%s): ...\ndef seam(a, %s): ...\nclass Class:\n    def method(self): ...\n"
    old = {
        **common,
        "torch/_C/__init__.pyi": "def gone(): ...\nkept: int",
        "torch/_private.py": private % ("", "b"),
    }
    new = {
        **common,
        "torch/_C/__init__.pyi": "kept: int",
        "torch/_private.py": (private % (", b=1", "c")).replace("def method", "def _method"),
        "torch/more.py": "from .other import *\ndef public(x, new=1): ...",
        "torch/_inductor/config.py": "",
    }
    trees = (Modules(write(tmp_path / name, files)) for name, files in (("old", old), ("new", new)))
    found = seen(compare.python(*trees, Sources(write(tmp_path / "us", files))))
    # Of functions that seams.py lists, only the parameters that it expects count.
    assert found == {
        ("removed", "torch._C.gone"): ["torch_backend/ours.py:4"],
        ("removed", "torch._inductor.config.knob"): ["torch_backend/ours.py:7"],
        ("removed", "torch._private.Class.method"): ["torch_backend/ours.py:7"],
    }
    assert not seen(compare.python(Modules(tmp_path / "old"), Modules(tmp_path / "old"), Sources(tmp_path / "us")))


def declared(*schemas, **values):
    entry = {"dispatch": (), "default": True, "structured": False, "structured_delegate": None} | values
    entry = {"requirement": "may", "reason": "cpu"} | entry
    return [Declaration(op=schema.split("(")[0], schema=schema, **entry) for schema in schemas]


def test_operators(tmp_path):
    ours = Sources(
        write(
            tmp_path,
            {
                "csrc/K.cpp": 'm.impl("gone.out", f);\nat::_ops::gone_out::call();\nat::some(x);\nat::kept(x);',
                "codegen/operators.yaml": "typed: [some, last] # gone.out",
                "torch_backend/k.py": "torch.ops.aten.gone.out\nname = 'aten::kept'",
            },
        )
    )
    old = declared(
        "aten::gone.out(Tensor a)", "aten::last(Tensor a)", "aten::kept.names(Tensor a)", "aten::kept(int a)"
    )
    new = declared("aten::kept(int b)", "aten::fresh(int b)", requirement="must", reason="no kernel")
    old += declared("aten::some(int a)", structured=True)
    new += declared("aten::some(int a)")
    found = list(compare.operators(Declarations.of("1", old), Declarations.of("2", new), ours))
    assert seen(f for f in found if f.change != "changed") == {
        ("added", "aten::fresh"): [],
        ("removed", "aten::gone.out"): ["csrc/K.cpp:1", "torch_backend/k.py:1", "csrc/K.cpp:2"],
        ("removed", "aten::last"): ["codegen/operators.yaml:1"],
        ("removed", "aten::kept.names"): [],  # the lines that name "kept" have the other overload
        ("removed", "aten::some"): ["csrc/K.cpp:3", "codegen/operators.yaml:1"],
    }
    assert {f.kind for f in found if f.what == "aten::some"} == {"structured group"}
    assert {f.detail for f in found if (f.change, f.what) == ("changed", "aten::kept")} == {
        "aten::kept(int a) -> aten::kept(int b)",
        "a device may -> must have a kernel",
    }
    assert "a device must have a kernel" in next(f.detail for f in found if f.what == "aten::fresh")


@pytest.fixture
def versions(tmp_path):
    """Two whole torches, with the installed one's operators."""
    for name, hooks in (("9.1.0", HOOKS % ""), ("9.2.0", HOOKS % " virtual void more() = 0;")):
        files = {
            "torch/version.py": f"__version__ = '{name}+cpu'",
            "torch/__init__.py": "",
            "torch/include/ATen/Hooks.h": hooks,
        }
        write(tmp_path / name, files)
        (tmp_path / name / "torchgen").symlink_to(Path(torchgen.__file__).parent)
    write(tmp_path / "ours", {"csrc/Ours.cpp": OURS})
    return [str(tmp_path / "9.1.0"), str(tmp_path / "9.2.0"), "--sources", str(tmp_path / "ours")]


def test_command(versions, capsys):
    assert command.main([*versions, "--json"]) == 0
    (step,) = json.loads(capsys.readouterr().out)
    assert (step["old"], step["new"]) == ("9.1.0", "9.2.0")
    (found,) = step["findings"]
    assert found["what"] == "Hooks::more()"
    assert found["uses"] == [{"path": "csrc/Ours.cpp", "line": 8, "guarded": False}]
    assert command.main(versions) == 0
    text = capsys.readouterr().out
    assert "## 9.1.0 to 9.2.0\n\nVirtual function added: 1.\n" in text
    assert "| `Hooks::more()` | virtual function added: has to be implemented | csrc/Ours.cpp:8 |" in text
    assert command.main([versions[0], *versions[:1], *versions[2:]]) == 0
    assert capsys.readouterr().out.endswith("## 9.1.0 to 9.1.0\n\nThe same.\n")


@pytest.mark.parametrize(
    ("version", "message"),
    [("nonsense", "'nonsense' is no version of torch and no folder"), (str(ROOT), f"{ROOT} has no torch")],
)
def test_no_such_version(version, message, tmp_path, capsys):
    assert command.main([version, "--cache", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err


def test_a_wheel(tmp_path):
    wheel, names = tmp_path / "torch.whl", ("torch/include/a.h", "torch/b.py", "torch/lib/c.so", "torchgen/d.yaml")
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (*names, "torch/_C/e.pyi", "caffe2/f.py"):
            archive.writestr(name, "")
    wheels.unpack(wheel, tmp_path / "out")
    files = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")}
    assert files == {"torch/include/a.h", "torch/b.py", "torchgen/d.yaml", "torch/_C/e.pyi"}
    wheel.write_bytes(b"PK, and then not")
    with pytest.raises(wheels.WheelError, match="cannot be unpacked"):
        wheels.unpack(wheel, tmp_path / "out")


def test_our_own_guards_and_bases_are_seen():
    sources = Sources(ROOT)
    guarded = {name for name, uses in sources.includes.items() if any(use.guarded for use in uses)}
    assert {"ATen/core/Dimname.h", "ATen/core/GraphImplInterface.h"} <= guarded
    bases = {"PrivateUse1HooksInterface", "DeviceGuardImplInterface", "GeneratorImpl", "DeviceAllocator", "Backend"}
    assert bases <= sources.bases.keys()
    assert all(use.guarded for use in sources.bases["GraphImplInterface"])
    assert sources.overrides("PrivateUse1HooksInterface", "getNewGenerator")
    assert "torch._inductor.compile_fx.compile_fx" in sources.seams
