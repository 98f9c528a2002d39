"""Kernels that come with a device library, through the table "kernels.1". Each device has a process of its own."""

import shutil
import subprocess
from pathlib import Path

import pytest
from fixtures import BuildPlugin, RunPython, run_program

from torch_backend.files import installed

EXAMPLE = Path(__file__).parents[2] / "examples" / "kernels"
CASES = Path(__file__).with_name("example_kernel_cases.py")


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's library, built as its users build it, only without CMake."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("example") / "libtorch_backend_example.so"
    sources = sorted(EXAMPLE.glob("*.c"))
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", f"-I{installed.include_dir()}"]
    subprocess.run([compiler, *flags, *sources, "-lm", "-o", library], check=True)
    return library


def test_example(example: Path, tmp_path: Path) -> None:
    settings = {"TORCH_BACKEND_PATH": example, "TORCH_BACKEND_EXAMPLE_TRACE": tmp_path / "trace"}
    arguments = ("-q", "-p", "no:xdist", "-p", "no:cacheprovider", CASES)
    run_program("python", "-m", "pytest", *arguments, TORCH_BACKEND="example", **settings)


# ---- tables that are not usable ----


@pytest.mark.parametrize(
    ("switch", "message"),
    [
        ("NULL_ENTRY", r"kernel 27 is NULL"),
        ("NULL_OP", r"kernel 27 has the op '\(null\)'"),
        ("BARE_OP", r"kernel 27 \(add.out\) has the op 'add.out'; an op is an operator with its namespace"),
        ("NO_FUNCTION", r"kernel 27 \(aten::add.out\) has no function"),
        ("UNKNOWN_FLAG", r"kernel 27 \(aten::add.out\) has flags 64, of which 64 is no TB_KERNEL_ flag"),
        ("SMALL_ENTRY", r"kernel 27 has struct_size 8, too small"),
        ("TWICE", r"kernel 27 \(aten::mul.out\) is listed twice"),
        ("SMALL_TABLE", r"its struct_size is 8, too small"),
        ("NO_LIST", r"num_kernels is 27 but kernels is NULL"),
        (
            "HALF_MODULE",
            r"module_formats, module_load, module_unload, module_function and module_launch belong together",
        ),
        ("WRONG_FIND", r"kernel_find\(\"aten::tanh.out\"\) of plugin 'acme' gave an entry that is for 'aten::tan.out'"),
    ],
)
def test_malformed_table(run_python: RunPython, build_plugin: BuildPlugin, switch: str, message: str) -> None:
    code = f"""
    import re, torch, torch_backend
    try:
        torch_backend.activate(torch_backend.load({str(build_plugin("KERNELS", switch))!r}))
    except ValueError as error:
        assert re.search({message!r}, str(error)), error
    else:
        raise AssertionError("no error")
    assert torch_backend.active() is None
    assert torch._C._get_privateuse1_backend_name() == "privateuseone"
    torch_backend.activate("xcpu")  # nothing of the other one is left
    assert torch.ones(2, device="xcpu").mul(3).tolist() == [3, 3]
    assert torch_backend.operators.operator_sources()["aten::mul.Tensor"] == "aten"
    """
    run_python(code)


# ---- kernels that fail ----

START = """
import pytest, torch, torch_backend
torch_backend.activate(torch_backend.load({path!r}))
x = torch.ones(1, device="acme")
sources = torch_backend.operators.operator_sources()
"""


@pytest.fixture
def run_failing(run_python: RunPython, build_plugin: BuildPlugin):  # type: ignore[no-untyped-def]
    start = START.format(path=str(build_plugin("KERNELS")))
    return lambda code: run_python(start + code)


def test_unknown_operators_are_a_warning(run_failing) -> None:  # type: ignore[no-untyped-def]
    process = run_failing("assert sources['aten::_foreach_add_.ScalarList'] != 'plugin'")
    (warning,) = [line for line in process.stderr.splitlines() if "not used with" in line]
    assert "aten::quantum_add.out is not defined" in warning
    assert "aten::_foreach_add_.ScalarList takes scalars of type Scalar[]" in warning
    assert "aten::normal_" not in warning
    assert "later::on" not in warning
    assert "native_batch_norm" not in warning


def test_failures_carry_the_plugins_text(run_failing) -> None:  # type: ignore[no-untyped-def]
    run_failing("""
with pytest.raises(torch.AcceleratorError, match=r"acme:0: aten::mul.out failed: internal error \\(INTERNAL\\): the "
                   "multiplier is on fire after 3 arguments"):
    x * x
with pytest.raises(torch.AcceleratorError, match="aten::tan.out failed"):  # from kernel_find
    x.tan_()
assert sources["aten::tan"] == "plugin"
assert torch.exp(x).item() == 7  # the second attempt
with pytest.raises(torch.OutOfMemoryError, match="aten::exp2.out failed: out of memory .*: no room at all"):
    torch.exp2(x)
with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
    torch.log(x)
assert (x + 1).item() == 2
""")


def test_allocations_that_a_kernel_may_not_make(run_failing) -> None:  # type: ignore[no-untyped-def]
    run_failing("""
for function, message in (
    (torch.sin, "alloc_output was called by a kernel that is not declared TB_KERNEL_ALLOCATES_OUTPUT"),
    (torch.cos, "alloc_workspace works only in a kernel"),
    (lambda x: torch.masked_select(x, x > 0), "set out_tensor->dtype before the call"),
):
    with pytest.raises(torch.AcceleratorError, match=message):
        function(x)
with pytest.raises(RuntimeError, match="aten::nonzero.out returned OK without alloc_output for output 0"):
    torch.nonzero(x)
""")


def test_arguments_by_tag(run_failing) -> None:  # type: ignore[no-untyped-def]
    run_failing("""
image = torch.ones(1, 1, 2, 2, device="acme")
none, integer, floating, tensor, ints, tensors = "0/0", "1/0", "3/0", "7/0", "257/{}", "263/{}"
for function, given in (
    (lambda: torch.ops.aten.upsample_nearest2d(image, [4, 4], None, 2.0),
     [tensor, ints.format(2), none, floating, tensor]),
    (lambda: torch.native_layer_norm(image, [2], None, None, 1e-5),
     [tensor, ints.format(1), none, none, floating, tensor, tensor, tensor]),
    (lambda: torch.ops.aten.index(image, [None, torch.zeros(1, dtype=torch.int64, device="acme")]),
     [tensor, tensors.format(2), tensor]),
    (lambda: torch.cat([image, image, image]), [tensors.format(3), integer, tensor]),
):
    with pytest.raises(torch.AcceleratorError, match="given " + " ".join(given) + "$"):
        function()
""")


def test_batch_normalization_by_the_name_of_its_out_form(run_failing) -> None:  # type: ignore[no-untyped-def]
    """It writes the running statistics besides its outputs, in every form."""
    run_failing("""
assert sources["aten::native_batch_norm"] == sources["aten::native_batch_norm.out"] == "plugin"
none, floating, boolean, tensor = "0/0", "3/0", "2/0", "7/0"
image, statistics = torch.ones(2, 1, 2, device="acme"), torch.ones(1, device="acme")
given = [tensor, none, none, tensor, tensor, boolean, floating, floating, tensor, tensor, tensor]
with pytest.raises(torch.AcceleratorError, match="given " + " ".join(given) + "$"):
    torch.nn.functional.batch_norm(image, statistics, statistics.clone(), training=True)
""")


def test_a_kernel_that_nobody_calls_is_a_warning(run_python: RunPython, build_plugin: BuildPlugin) -> None:
    code = f"""
    import torch, torch_backend

    library = torch.library.Library("aten", "IMPL")
    for overload in ("mul.out", "mul.Tensor", "mul_.Tensor", "exp"):
        library.impl(overload, lambda *args: None, "PrivateUse1")
    torch_backend.activate(torch_backend.load({str(build_plugin("KERNELS"))!r}))
    """
    (warning,) = [line for line in run_python(code).stderr.splitlines() if "not used with" in line]
    assert "aten::mul.out serves nothing, because somebody else has registered kernels for the operator" in warning
    assert "aten::exp.out does not serve aten::exp, for which somebody else has registered a kernel" in warning
    assert "aten::neg.out" not in warning


def test_lost_device_stays_lost(run_failing) -> None:  # type: ignore[no-untyped-def]
    run_failing("""
with pytest.raises(torch.AcceleratorError, match="aten::neg.out failed: device lost .*: it fell off the bus"):
    -x
with pytest.raises(torch.AcceleratorError, match="lost"):
    x * x
""")


# ---- what kernels ask for: random numbers, inputs as they are ----

TOLD = """
import re
def told(function):
    with pytest.raises(torch.AcceleratorError) as caught:
        function()
    return re.search("told (.*)[.]", str(caught.value)).group(1)
float16, int32, int64, mask = x.half(), x.int(), x.long(), x > 0
"""


def test_kernels_draw_random_numbers(run_failing) -> None:  # type: ignore[no-untyped-def]
    """Each call gets its own part of the generator's sequence: that which was passed, or the device's own."""
    run_failing(
        TOLD
        + """
assert sources["aten::normal_"] == sources["aten::bernoulli"] == "plugin"
torch.manual_seed(5)
assert told(lambda: x.normal_()) == "in 0/0: t2/32 f0 f1 g5+0"
assert told(lambda: x.normal_(2, 3)) == "in 0/0: t2/32 f2 f3 g5+256"
own = torch.Generator(device="acme").manual_seed(2**64 - 7)
assert told(lambda: x.normal_(generator=own)) == f"in 0/0: t2/32 f0 f1 g{2**64 - 7}+0"
assert told(lambda: torch.bernoulli(x, generator=own)).split()[-2:] == [f"g{2**64 - 7}+256", "t2/32"]
assert told(lambda: torch.bernoulli(x)).split()[-2:] == ["g5+512", "t2/32"]
own.manual_seed(1)
state = own.get_state()
assert told(lambda: x.normal_(generator=own)).endswith("g1+0")
own.set_state(state)
assert told(lambda: x.normal_(generator=own)).endswith("g1+0")
with pytest.raises(RuntimeError, match="generator"):
    x.normal_(generator=torch.Generator())
"""
    )


def test_threads_draw_different_numbers(run_failing) -> None:  # type: ignore[no-untyped-def]
    run_failing(
        TOLD
        + """
from torch_conformance.threads import in_threads
torch.manual_seed(5)
offsets = []
def draw():
    for _ in range(20):
        offsets.append(int(told(lambda: x.normal_()).split("+")[1]))
in_threads([draw] * 4)
assert sorted(offsets) == [256 * call for call in range(80)]
"""
    )


def test_inputs_keep_their_dtypes(run_failing) -> None:  # type: ignore[no-untyped-def]
    """Of a kernel with TB_KERNEL_MIXED_DTYPES, which is told what PyTorch computes in."""
    run_failing(
        TOLD
        + """
assert told(lambda: float16 - x) == "in 2/32: t2/16 t2/32 i1 t2/32"
assert told(lambda: x - int64) == "in 2/32: t2/32 t0/64 i1 t2/32"
assert told(lambda: int32 - int64) == "in 0/64: t0/32 t0/64 i1 t0/64"
assert told(lambda: torch.sub(x, int64, alpha=2)) == "in 2/32: t2/32 t0/64 i2 t2/32"
assert told(lambda: x.sub_(int64)) == "in 2/32: t2/32 t0/64 i1 t2/32"
assert told(lambda: int32 / int64) == "in 2/32: t0/32 t0/64 t2/32", "a true division of integers"
assert told(lambda: float16 / x.double()) == "in 2/64: t2/16 t2/64 t2/64"
assert told(lambda: float16 == x) == "in 2/32: t2/16 t2/32 t6/8", "compared in what both fit"
assert told(lambda: torch.logical_and(float16, int64)) == "in 2/16: t2/16 t0/64 t6/8"
assert told(lambda: torch.where(mask, int64, x)) == "in 2/32: t6/8 t0/64 t2/32 t2/32"
out = torch.empty(1, dtype=torch.float64, device="acme")
assert told(lambda: torch.sub(x, int64, out=out)) == "in 2/32: t2/32 t0/64 i1 t2/64", "the output too"
assert told(lambda: torch.atan2(float16, x)) == "in 2/32: t2/32 t2/32 t2/32", "a kernel without the flag"
assert told(lambda: float16 - float16) == "in 2/16: t2/16 t2/16 i1 t2/16"
"""
    )


def test_numbers_stay_numbers(run_failing) -> None:  # type: ignore[no-untyped-def]
    """Of a kernel with TB_KERNEL_NUMBERS; for others they are tensors."""
    run_failing(
        TOLD
        + """
assert told(lambda: x / 2) == "in 2/32: t2/32 i2 t2/32"
assert told(lambda: x / 2.5) == "in 2/32: t2/32 f2.5 t2/32"
assert told(lambda: x / True) == "in 2/32: t2/32 b1 t2/32"
assert told(lambda: x / (2 - 1j)) == "in 5/64: t2/32 c2,-1 t5/64"
assert told(lambda: int32 / 2) == "in 2/32: t0/32 i2 t2/32"
assert told(lambda: torch.div(torch.tensor(3.0), x)) == "in 2/32: f3 t2/32 t2/32"
assert told(lambda: x.div_(4)) == "in 2/32: t2/32 i4 t2/32"
assert told(lambda: torch.atan2(x, torch.tensor(2.5))) == "in 2/32: t2/32 f2.5 t2/32"
assert told(lambda: torch.logical_and(x, torch.tensor(2))) == "in 2/32: t2/32 i2 t6/8"
assert told(lambda: torch.logical_and(int64, torch.tensor(2.5))) == "in 2/32: t0/64 f2.5 t6/8"
assert told(lambda: x - 2) == "in 2/32: t2/32 t2/32 i1 t2/32", "a kernel without the flag"
assert told(lambda: torch.div(x, torch.tensor(2.0, device="acme"))) == "in 2/32: t2/32 t2/32 t2/32"
"""
    )


def test_numbers_are_of_the_dtype(run_failing) -> None:  # type: ignore[no-untyped-def]
    """As PyTorch converts them: where it raises no kernel is called."""
    run_failing(
        TOLD
        + """
uint8 = x.byte()
assert told(lambda: torch.sub(int32, int32, alpha=-3)) == "in 0/32: t0/32 t0/32 i-3 t0/32"
assert told(lambda: torch.sub(uint8, uint8, alpha=255)) == "in 1/8: t1/8 t1/8 i255 t1/8"
assert told(lambda: torch.sub(uint8, uint8, alpha=-3)) == "in 1/8: t1/8 t1/8 i253 t1/8"
assert told(lambda: torch.sub(uint8, x, alpha=300)) == "in 2/32: t1/8 t2/32 i300 t2/32"
for few, alpha in ((uint8, 256), (uint8, -300), (x.char(), -200), (int32, 2**40)):
    with pytest.raises(RuntimeError, match="cannot be converted to type .* without overflow"):
        torch.sub(few, few, alpha=alpha)
"""
    )


def test_kernels_know_what_the_program_allows(run_failing) -> None:  # type: ignore[no-untyped-def]
    """Of a kernel with TB_KERNEL_MATH_FLAGS, in all the ways in which PyTorch lets a program say it."""
    run_failing(
        TOLD
        + """
from torch_backend.abi import MathFlag
def allowed():
    said = re.search("allowed ([0-9]+)", told(lambda: torch.dot(x, x)))
    return MathFlag(int(said[1]) if said else 0)
usual = MathFlag.TF32_CONV | MathFlag.FP16_REDUCTION | MathFlag.BF16_REDUCTION
assert allowed() == usual, "PyTorch's defaults"
assert "allowed" not in told(lambda: torch.vdot(x, x)), "a kernel without the flag"
matmul = torch.backends.acme.matmul
torch.set_float32_matmul_precision("high")
assert allowed() == usual | MathFlag.TF32_MATMUL
torch.set_float32_matmul_precision("highest")
assert allowed() == usual
matmul.allow_tf32 = True
assert allowed() == usual | MathFlag.TF32_MATMUL
matmul.allow_tf32 = False
matmul.allow_fp16_reduced_precision_reduction = False
assert allowed() == usual & ~MathFlag.FP16_REDUCTION
matmul.allow_bf16_reduced_precision_reduction = False
matmul.allow_fp16_accumulation = True
assert allowed() == MathFlag.TF32_CONV | MathFlag.FP16_ACCUMULATION
with torch.backends.cudnn.flags(allow_tf32=False, deterministic=True):
    assert allowed() == MathFlag.FP16_ACCUMULATION | MathFlag.DETERMINISTIC
torch.use_deterministic_algorithms(True)
assert allowed() & MathFlag.DETERMINISTIC
torch.use_deterministic_algorithms(False)
matmul.fp32_precision = "tf32"
assert allowed() & MathFlag.TF32_MATMUL, "said in the newer way, after the older one"
"""
    )
