"""torch_backend.declarations: what PyTorch asks of a device, against PyTorch itself and on changed tables."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fixtures import RunPython

from torch_backend import declarations
from torch_backend.declarations import Declaration, Declarations
from torch_backend.declarations.requirements import Facts, requirement

pytest.importorskip("yaml")
import torchgen

TORCHGEN = Path(torchgen.__file__).parent
Edit = Callable[[str], str]


@pytest.fixture(scope="session")
def table() -> Declarations:
    return declarations.installed()


@pytest.fixture
def other_torch(tmp_path: Path) -> Callable[[Edit], Path]:
    """A site-packages directory with a torch of version 9.8 whose native_functions.yaml was changed by ``edit``."""

    def make(edit: Edit) -> Path:
        shutil.copytree(TORCHGEN, tmp_path / "torchgen", ignore=shutil.ignore_patterns("__pycache__", "templates"))
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "version.py").write_text("__version__ = '9.8.7+acme'\n")
        yaml = tmp_path / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"
        yaml.write_text(edit(yaml.read_text()))
        return tmp_path

    return make


# ---- against the installed torch ----


def test_installed(table: Declarations) -> None:
    assert table.torch == torch.__version__
    registered = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    assert {declaration.op for declaration in table} <= registered
    assert len(table) > 3000
    assert sum(table.counts().values()) == len(table)


def has_dispatch(declaration: Declaration) -> bool:
    """The header's flag. The header is written without the keys that its build leaves out."""
    keys = {key for key in declaration.dispatch if not key.endswith("MPS")}
    implicit = {"CompositeImplicitAutograd"}
    return keys not in (implicit, implicit | {"CompositeImplicitAutogradNestedTensor"})


def test_flags_are_those_of_registration_declarations(table: Declarations) -> None:
    header = Path(torch.__file__).parent / "include" / "ATen" / "RegistrationDeclarations.h"
    entries = [json.loads(found) for found in re.findall(r"// (\{\"schema\".*\})", header.read_text())]
    expected = {entry["schema"]: (entry["dispatch"], entry["default"]) for entry in entries}
    actual = {entry.schema: (str(has_dispatch(entry)), str(entry.default)) for entry in table}
    assert actual == expected


def test_what_has_no_kernel_is_what_the_dispatcher_cannot_run(table: Declarations, run_python: RunPython) -> None:
    """In a process without any device: its registrations would count."""
    code = """
    import torch
    has = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    print(*(name for name in names if not has(name, "PrivateUse1") and not has(name, "CPU")))
    """
    unavailable = set(run_python(code).stdout.split())
    without = {declaration.op for declaration in table if not declaration.default and "CPU" not in declaration.dispatch}
    assert without == unavailable


# The smallest set of operators that a usable device has, without those that the CPU fallback can run:
# _local_scalar_dense.
BASICS = """
    empty.memory_format empty_strided as_strided view _reshape_alias unfold view_as_real view_as_complex resize_ set_
    set_.source_Storage set_.source_Storage_storage_offset set_.source_Tensor _copy_from _copy_from_and_resize
    _efficientzerotensor
"""
# What PyTorch calls on every device, with neither a CPU kernel nor a default that works. The basics of sparse tensors
# (_indices, _nnz, ...) are not here: they belong to the dispatch key of sparse tensors.
CALLED = """
    convolution_overrideable convolution_backward_overrideable _thnn_fused_lstm_cell _thnn_fused_gru_cell
    _thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell_backward record_stream
    _scaled_dot_product_fused_attention_overrideable _scaled_dot_product_fused_attention_overrideable_backward
    batch_norm_stats batch_norm_elemt batch_norm_elemt.out batch_norm_gather_stats batch_norm_gather_stats_with_counts
    batch_norm_backward_reduce batch_norm_backward_elemt mm.dtype mm.dtype_out bmm.dtype bmm.dtype_out addmm.dtype
    addmm.dtype_out baddbmm.dtype baddbmm.dtype_out _fused_dropout _masked_scale _resize_output_ _scaled_grouped_mm
    _philox_key_fold_in _philox_key_split _philox_normal_ _philox_uniform_
"""
# The same, but only for a program that asks for the feature: low-precision and structured-sparse linear layers, the
# attention kernels of CUDA, and what PyTorch calls on CUDA or MPS tensors only, which its tables do not say.
FEATURES = """
    _conv_depthwise2d _conv_depthwise2d.out _convert_weight_to_int4pack _efficient_attention_backward
    _efficient_attention_forward _fill_mem_eff_dropout_mask_ _flash_attention_backward _flash_attention_forward
    _flash_attention_forward.quantized _flash_attention_forward_no_dropout_inplace _fused_rms_norm_backward
    _mixed_dtypes_linear _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention.quantized
    _scaled_dot_product_flash_attention_backward _scaled_grouped_mm_v2 _sparse_semi_structured_addmm
    _sparse_semi_structured_apply _sparse_semi_structured_apply_dense _sparse_semi_structured_linear
    _sparse_semi_structured_mm _sparse_semi_structured_tile _to_sparse_semi_structured _weight_int4pack_mm
    _weight_int4pack_mm_with_scales_and_zeros conv_depthwise3d linear_backward max_pool2d_backward
    _nested_view_from_buffer
"""


def test_what_a_device_must_write(table: Declarations) -> None:
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the list is of torch 2.13")
    expected = {f"aten::{name}" for name in f"{BASICS} {CALLED} {FEATURES}".split()}
    assert table.required("must") == expected


def test_basics_in_every_version(table: Declarations) -> None:
    for name in BASICS.split():
        if f"aten::{name}" in table:
            assert table[f"aten::{name}"].requirement == "must", name


def test_examples(table: Declarations) -> None:
    found = {
        name: (table[f"aten::{name}"].requirement, table[f"aten::{name}"].reason)
        for name in (
            "add.out",
            "add.Tensor",
            "matmul",
            "zeros",
            "native_layer_norm.out",
            "_indices",
            "cudnn_convolution",
            "sort.stable",
        )
    }
    assert found == {
        "add.out": ("may", "cpu"),
        "add.Tensor": ("need not", "structured"),
        "matmul": ("need not", "composite"),
        "zeros": ("may", "default"),
        "native_layer_norm.out": ("need not", "generated"),
        "_indices": ("need not", "layout"),
        "cudnn_convolution": ("need not", "library"),
        "sort.stable": ("need not", "structured"),
    }
    assert table["aten::add.out"].structured
    assert table["aten::add_.Tensor"].structured_delegate == "aten::add.out"
    assert {"CPU", "CUDA"} <= set(table["aten::add.out"].dispatch)


# ---- the rules ----


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"keys": {"CPU"}}, ("may", "cpu")),
        ({"keys": {"CPU"}, "view": True}, ("must", "view")),
        ({"keys": {"CPU"}, "changes_memory": True}, ("must", "memory")),
        ({"keys": {"CPU"}, "name": "empty.memory_format"}, ("must", "fallback")),
        ({"keys": {"CUDA"}}, ("must", "no kernel")),
        ({"keys": {"Meta"}}, ("must", "no kernel")),
        ({"keys": {"SparseCUDA", "NestedTensorCPU", "Meta"}}, ("need not", "layout")),
        ({"keys": {"SparseCUDA", "MPS"}}, ("must", "no kernel")),
        ({"keys": {"CUDA"}, "name": "_use_cudnn_ctc_loss.Tensor"}, ("need not", "library")),
        ({"keys": set()}, ("need not", "subclass")),
        ({"default": True, "implicit": True, "view": True}, ("need not", "composite")),
        ({"default": True, "delegates": True}, ("need not", "structured")),
        ({"default": True, "generated": True, "name": "foo_overrideable.out"}, ("need not", "generated")),
        ({"default": True, "name": "foo_overrideable"}, ("must", "overrideable")),
        ({"default": True, "view": True}, ("may", "default")),
    ],
)
def test_rules(changed: dict[str, object], expected: tuple[str, str]) -> None:
    plain = {"name": "foo", "keys": frozenset(), "implicit": False, "default": False, "delegates": False}
    facts = Facts(**(plain | {"generated": False, "view": False, "changes_memory": False} | changed))  # type: ignore[arg-type]
    assert requirement(facts) == expected
    assert expected[1] in declarations.REASONS


# ---- other versions ----


def edited(text: str) -> str:
    """native_functions.yaml of a torch in which five things are different."""
    text, removed = re.subn(r"\n- func: nan_to_num_\(.*\n(?:  .*\n)*", "\n", text)
    text, schema = re.subn(r"(- func: sum_to_size\(Tensor self, SymInt\[\] size)\)", r"\1, bool acme=False)", text)
    text, kernel = re.subn(
        r"(- func: record_stream\(.*\n(?:  .*\n)*?    CUDA: )record_stream_cuda", r"\1x\n    CPU: x", text
    )
    added = "- func: acme_new(Tensor self) -> Tensor\n  dispatch:\n    CUDA: acme_new\n"
    assert (removed, schema, kernel) == (1, 1, 1)
    return f"{text}\n{added}"


def test_another_installation(table: Declarations, other_torch: Callable[[Edit], Path]) -> None:
    place = other_torch(edited)
    new = declarations.load(place)
    assert new.torch == "9.8.7+acme"
    found = declarations.difference(table, new)
    assert (found.old, found.new) == (torch.__version__, "9.8.7+acme")
    assert "aten::acme_new" in {entry.op for entry in found.added}
    assert new["aten::acme_new"].requirement == "must"
    assert {"aten::nan_to_num_"} <= {entry.op for entry in found.removed} <= {"aten::nan_to_num_", "aten::nan_to_num"}
    assert "aten::sum_to_size" in {change.op for change in found.changed_schema}
    (change,) = found.changed_requirement
    assert (change.op, change.old.requirement, change.new.requirement) == ("aten::record_stream", "must", "may")
    text = str(found)
    assert text.startswith(f"torch {torch.__version__} -> 9.8.7+acme\n")
    assert "  aten::acme_new(Tensor self) -> Tensor  [must: PyTorch has no default and no CPU kernel]" in text
    assert "    - aten::sum_to_size(Tensor self, SymInt[] size) -> Tensor" in text
    assert "    + aten::sum_to_size(Tensor self, SymInt[] size, bool acme=False) -> Tensor" in text
    assert "changed requirement (1)\n  aten::record_stream: must: " in text
    assert json.loads(json.dumps(found.to_json()))["changed_requirement"][0]["new"]["op"] == "aten::record_stream"
    assert declarations.load(place / "torchgen") == new


def test_same_torch_differs_in_nothing(table: Declarations) -> None:
    again = declarations.load(TORCHGEN.parent)
    assert again == table
    found = declarations.difference(again, table)
    assert not found
    assert str(found) == f"torch {torch.__version__} -> {torch.__version__}: no operator differs."


def test_tables_that_their_torchgen_cannot_read(other_torch: Callable[[Edit], Path]) -> None:
    place = other_torch(lambda text: f"{text}\n- func: no schema\n")
    with pytest.raises(ValueError, match=f"The tables in {place}/torchgen cannot be read by the torchgen there: "):
        declarations.load(place)


def test_json_round_trip(table: Declarations, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(table.to_json()))
    assert declarations.load(path) == table


def test_json_of_this_format(table: Declarations) -> None:
    value = table.to_json()
    assert list(value) == ["format", "torch", "operators"]
    assert value["operators"] == sorted(value["operators"], key=lambda entry: entry["op"])
    (entry,) = [entry for entry in value["operators"] if entry["op"] == "aten::abs"]
    assert {key: entry[key] for key in entry if key not in ("dispatch", "reason", "requirement")} == {
        "op": "aten::abs",
        "schema": "aten::abs(Tensor self) -> Tensor",
        "default": True,
        "structured": False,
        "structured_delegate": None,
        "cpp": "at::Tensor abs(const at::Tensor & self)",
    }
    for entry in value["operators"]:
        del entry["cpp"]  # as files were before there was this
    assert Declarations.from_json(value)["aten::abs"].cpp == ""


def test_kernels_in_cpp(table: Declarations) -> None:
    """As the dispatcher has them: other types for in-place operators and for lists of structured ones."""
    assert table["aten::add_.Tensor"].cpp == (
        "at::Tensor & add_(at::Tensor & self, const at::Tensor & other, const at::Scalar & alpha)"
    )
    assert table["aten::cat"].cpp == "at::Tensor cat(const at::ITensorListRef & tensors, int64_t dim)"
    assert "c10::SymIntArrayRef size" in table["aten::empty.memory_format"].cpp
    assert all(entry.cpp for entry in table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "has format none, expected 1"),
        ('{"format": 99}', "has format 99, expected 1"),
        ('{"format": 1}', "KeyError: 'operators'"),
        ('{"format": 1, "operators": [{"op": "aten::x"}]}', "KeyError: 'schema'"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        declarations.load(path)
    assert str(path) in str(caught.value)


def test_requirement_that_does_not_exist(table: Declarations) -> None:
    value = table.to_json()
    value["operators"][0]["requirement"] = "should"
    with pytest.raises(ValueError, match="is 'should'; expected one of 'must', 'may', 'need not'"):
        Declarations.from_json(value)


def test_places_that_are_something_else(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no torchgen with PyTorch's operator tables: name the site-packages"):
        declarations.load(tmp_path)
    with pytest.raises(ValueError, match=r"There is no file or directory .*/nowhere"):
        declarations.load(tmp_path / "nowhere")


def test_without_pyyaml(run_python: RunPython) -> None:
    code = """
    import importlib.util
    real = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *rest: None if name == "yaml" else real(name, *rest)
    from torch_backend import declarations
    try:
        declarations.installed()
    except ImportError as error:
        print(error)
    """
    assert "read with pyyaml, which is not installed: pip install pyyaml" in run_python(code).stdout


def test_needs_neither_torch_nor_a_device(run_python: RunPython) -> None:
    run_python("""
    import sys
    from torch_backend import declarations
    assert declarations.installed()["aten::add.out"].structured
    assert "torch" not in sys.modules
    """)


def test_declarations_are_values() -> None:
    entry = Declaration("aten::x", "aten::x() -> ()", (), True, False, None, "may", "default")
    with pytest.raises(AttributeError):
        entry.op = "aten::y"  # type: ignore[misc]
