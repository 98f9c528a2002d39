"""What codegen writes for the typed kernels: which overloads, with which flags, in which files."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from codegen import emit, operators, parse, typed  # noqa: E402


@pytest.fixture(scope="module")
def installed():
    return parse.native_functions()


def overloads(installed, *names):
    hand_written = operators.read().hand_written_overloads
    return {kernel.overload: kernel for kernel in typed.typed_kernels(*installed, names, hand_written)}


def test_a_name_covers_functional_in_place_and_out(installed):
    assert {"sigmoid", "sigmoid_"} <= set(overloads(installed, "sigmoid"))
    assert {"add.Tensor", "add_.Tensor", "add.out"} <= set(overloads(installed, "add"))


def test_an_in_place_name_covers_nothing_else(installed):
    assert all(name.startswith("masked_fill_") for name in overloads(installed, "masked_fill_"))


def test_composites_are_left_to_pytorch(installed):
    assert "add.Scalar" not in overloads(installed, "add")


def test_views_and_own_kernels_are_refused(installed):
    for name in ("as_strided", "view", "resize_"):
        with pytest.raises(typed.CodegenError, match=name):
            overloads(installed, name)


def test_running_statistics_are_written(installed):
    assert overloads(installed, "add")["add.Tensor"].flags == "0"
    assert overloads(installed, "native_batch_norm")["native_batch_norm"].flags == "kWritesOptionals"
    assert overloads(installed, "native_batch_norm_backward")["native_batch_norm_backward"].flags == "0"


def test_unknown_names_are_all_reported(installed):
    with pytest.raises(typed.CodegenError, match=r"no_such_op, other_missing_op") as error:
        overloads(installed, "add", "other_missing_op", "no_such_op")
    assert "operators.yaml" in str(error.value)


def test_generated_text(installed, tmp_path):
    kernels = [
        typed.TypedKernel("abs", "abs", "ATen/ops/abs_ops.h", "0"),
        typed.TypedKernel(
            "native_batch_norm", "native_batch_norm", "ATen/ops/native_batch_norm_ops.h", "kWritesOptionals"
        ),
    ]
    paths = emit.emit_typed_kernels(kernels, tmp_path, num_shards=1)
    assert [path.name for path in paths] == ["RegisterTypedKernels_0.cpp", "RegisterTypedKernelsAll.cpp"]
    for path in paths:
        assert path.read_text() == (HERE / "golden" / path.name).read_text()


def test_an_unchanged_file_keeps_its_time(tmp_path):
    kernels = [typed.TypedKernel("abs", "abs", "ATen/ops/abs_ops.h", "0")]
    before = [path.stat().st_mtime_ns for path in emit.emit_typed_kernels(kernels, tmp_path, num_shards=1)]
    after = [path.stat().st_mtime_ns for path in emit.emit_typed_kernels(kernels, tmp_path, num_shards=1)]
    assert before == after


def test_every_kernel_is_in_one_shard(installed, tmp_path):
    kernels = typed.typed_kernels(*installed, ["add", "mul", "sum"])
    text = "".join(path.read_text() for path in emit.emit_typed_kernels(kernels, tmp_path, num_shards=3))
    assert all(text.count(f'm.impl("{kernel.overload}"') == 1 for kernel in kernels)


def test_the_shipped_list_fits_the_installed_torch(installed):
    names = operators.read().hot
    assert len(names) == len(set(names))
    assert len(typed.typed_kernels(*installed, names)) > len(names)
