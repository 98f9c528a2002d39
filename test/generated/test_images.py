"""Kernels compiled ahead by `torch-backend compile-kernels`, on a device whose driver takes images alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import DEVICE

if DEVICE != "xcpu" or os.environ["TORCH_BACKEND_XCPU_MODULES"] != "1":
    pytest.skip("the driver without a compiler is xcpu's, with items in order", allow_module_level=True)

COMPILER = "c++ -std=c++17 -O1 -w -shared -fPIC -ffp-contract=off -fno-math-errno -o {image} {source} -lm"


def run(command: list[str], **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {
        "TORCH_BACKEND": "xcpu",
        "TORCH_BACKEND_XCPU_MODULES": "1",
        "TORCH_BACKEND_XCPU_COMPILER": "0",
        "TORCH_BACKEND_CACHE_MIB": "0",
        "PYTHONPATH": str(Path(__file__).parent),
    }
    return subprocess.run(
        [sys.executable, *command], env=environment | variables, capture_output=True, text=True, timeout=600
    )


def compile_kernels(images: Path, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return run(["-m", "torch_backend", "compile-kernels", "--device", "xcpu", "-o", str(images), *map(str, arguments)])


def test_a_model_trains_with_what_was_compiled_ahead(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch_backend\n"
        "from test_training import MODELS, train\n"
        "make, draw = MODELS['decoder']\n"
        "losses = []\n"
        "for device in ('cpu', 'xcpu'):\n"
        "    torch.manual_seed(5)\n"
        "    model, batch = make(), draw()\n"
        "    losses.append(train(model, [batch] * 3, device))\n"
        "torch.testing.assert_close(losses[1], losses[0], rtol=2e-2, atol=2e-3)\n"
        "print(torch_backend.fallback.report().calls)\n"
    )
    images = tmp_path / "images"
    first = compile_kernels(images, "--compiler", COMPILER, "--json", script)
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout[first.stdout.index("{") :])
    kept = {file.name for file in images.iterdir()}
    assert told["compiled"] == told["images"] == len(kept) > 30
    assert told["fallbacks"] == {}
    trained = run([str(script)], TORCH_BACKEND_IMAGES=str(images))
    assert (trained.returncode, trained.stdout) == (0, "0\n"), trained.stderr
    again = compile_kernels(images, "--compiler", COMPILER, "--json", script)
    assert json.loads(again.stdout[again.stdout.index("{") :])["compiled"] == 0
    assert {file.name for file in images.iterdir()} == kept


PROGRAM = """
import torch, torch_backend
x = torch.randn(6, 40)
there = x.to("xcpu")
assert there.sort().values.cpu().equal(x.sort().values)
there.mul_(2).add_(there.t().contiguous().t())
assert there.cpu().equal(x * 4)
torch.testing.assert_close(there.std().cpu(), (x * 4).std())
image, weight = x.view(1, 1, 6, 40), x[:3, :3].reshape(1, 1, 3, 3)
convolved = torch.nn.functional.conv2d(image.to("xcpu"), weight.to("xcpu"))
torch.testing.assert_close(convolved.cpu(), torch.nn.functional.conv2d(image, weight))
print(sorted(entry.op for entry in torch_backend.fallback.report()))
"""


def test_what_has_no_image_runs_on_the_cpu_and_says_how_to_make_one(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = run([str(script)], TORCH_BACKEND_IMAGES=str(tmp_path / "images"))
    assert done.returncode == 0, done.stderr
    assert "aten::sort" in done.stdout
    assert "aten::convolution" in done.stdout
    assert done.stderr.count("has no image of the kernel") == 1
    assert f"torch-backend compile-kernels --device xcpu -o {tmp_path / 'images'} SCRIPT" in done.stderr


ATTENTION = """
import sys, torch, torch_backend
from torch.nn.functional import scaled_dot_product_attention as attention

def run(device, dtype=torch.float32, mask=None, **options):
    torch.manual_seed(3)
    shapes = ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 16))
    leaves = [torch.randn(shape).to(dtype).to(device).requires_grad_() for shape in shapes]
    torch.manual_seed(4)
    result = attention(*leaves, None if mask is None else mask.to(device), enable_gqa=True, **options)
    return [result, *torch.autograd.grad(result.sin().sum(), leaves)]

rows = torch.rand(2, 1, 5, 7) > 0.4
rows[0, 0, 2] = False
half = torch.bfloat16
for options in ({"is_causal": True}, {"mask": rows}, {"mask": torch.randn(5, 7).to(half), "dtype": half}):
    near = {"rtol": 0.03, "atol": 0.01} if "dtype" in options else {"rtol": 1e-4, "atol": 1e-5}
    for ours, theirs in zip(run("xcpu", **options), run("cpu", **options)):
        torch.testing.assert_close(ours.cpu(), theirs, **near)
torch.save([x.detach().cpu() for x in run("xcpu", dropout_p=0.4)], sys.argv[1])
print(sorted(entry.op for entry in torch_backend.fallback.report()))
"""


def test_attention_without_an_image_is_made_of_other_operators(tmp_path):
    """With each pass's image and without: one may have the forward pass's alone, and the same weights are dropped."""
    script = tmp_path / "attention.py"
    script.write_text(ATTENTION)
    results = {}
    for name in ("compiled", "none", "forward", "backward"):
        images, saved = tmp_path / name, tmp_path / f"{name}.pt"
        if name == "compiled":
            done = compile_kernels(images, "--compiler", COMPILER, "--", script, str(saved))
            assert done.returncode == 0, done.stderr
        else:
            images.mkdir()
            for image in (tmp_path / "compiled").iterdir():
                is_backward = b"backward_of" in image.read_bytes()
                if name != "none" and is_backward == (name == "backward"):
                    (images / image.name).symlink_to(image)
            done = run([str(script), str(saved)], TORCH_BACKEND_IMAGES=str(images))
            assert done.returncode == 0, done.stderr
            assert "aten::" in done.stdout, "other operators have no images, and fall back"
        results[name] = torch.load(saved)
    for name, found in results.items():
        torch.testing.assert_close(found, results["compiled"], msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.long
def test_a_list_of_operators_is_compiled_with_samples(tmp_path):
    operators = tmp_path / "operators.txt"
    operators.write_text(
        "operator        calls  with modules  schema\n"
        "aten::exp.out       2  generated     aten::exp.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)\n"
        "aten::_softmax.out  1  generated     ...\n"
        "aten::_foreach_add_.List  # optimizers\n"
        "aten::_fused_adamw_\n"
        "aten::_fused_dropout.out\n"
        "\n1,000 operators on xcpu; a device that takes modules gets 3 of them.\n"
    )
    images = tmp_path / "images"
    done = compile_kernels(
        images, "--compiler", COMPILER, "--operators", operators, "--dtypes", "float32,bfloat16", "--json"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout[done.stdout.index("{") :])
    assert told["compiled"] == len(list(images.iterdir())) > 8
    assert told["without_samples"] == {"aten::_fused_dropout.out": ["float32", "bfloat16"]}
    program = (
        "import torch, torch_backend\n"
        "for dtype in (torch.float32, torch.bfloat16):\n"
        "    x = torch.ones(3, 4, dtype=dtype).to('xcpu').requires_grad_()\n"
        "    grad = torch.ones(3, 4, dtype=dtype).to('xcpu')\n"
        "    x.softmax(1).backward(grad)\n"
        "    x.exp()\n"
        "    torch._foreach_add_([x.detach()], [grad], alpha=2)\n"
        "    torch.optim.AdamW([x], fused=True).step()\n"
        "print(torch_backend.fallback.report().calls)\n"
    )
    done = run(["-c", program], TORCH_BACKEND_IMAGES=str(images))
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        ("aten::exp\naten::nope.out", (), "line 2: There is no operator 'aten::nope.out'"),
        ("\n", (), "names no operator"),
        ("aten::exp", ("--dtypes", "float32,floaty"), "'floaty' is no dtype of torch"),
        (None, (), "give a SCRIPT, --operators, or both"),
        (None, ("--dtypes", "float32", __file__), "--operators, which is not given"),
    ],
)
def test_lists_of_operators_that_are_none(tmp_path, lines, options, message):
    if lines is not None:
        (tmp_path / "operators.txt").write_text(lines)
        options = (*options, "--operators", tmp_path / "operators.txt")
    done = compile_kernels(tmp_path / "images", *options)
    assert done.returncode == 2
    assert message in done.stderr


def test_an_operator_of_which_one_text_is_missing_is_done_once(tmp_path):
    """Each image in turn is taken away: in-place operators are not half done by the device and then by the CPU."""
    script = tmp_path / "program.py"
    script.write_text(
        "import torch, torch_backend\n"
        "tensors = [torch.ones(1000), torch.ones(1000, dtype=torch.bfloat16), torch.ones(1000, dtype=torch.float64)]\n"
        "there = [x.to('xcpu') for x in tensors]\n"
        "torch._foreach_mul_(there, 2.0)\n"
        "assert all(x.cpu().equal(y * 2) for x, y in zip(there, tensors))\n"
        "print(torch_backend.fallback.report().calls)\n"
    )
    images = tmp_path / "images"
    first = compile_kernels(images, "--compiler", COMPILER, script)
    assert first.returncode == 0, first.stderr
    files = sorted(images.iterdir())
    assert len(files) > 2
    for file in files:
        aside = file.rename(tmp_path / "aside")
        done = run([str(script)], TORCH_BACKEND_IMAGES=str(images))
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) > 0
        aside.rename(file)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--compiler", "c++ {source}"], 2, "names no {image}"),
        (["--compiler", "no-such-compiler {source} {image}"], 1, "no-such-compiler cannot be started"),
        (["--compiler", "cp {source} {image}"], 1, "does not take what the compiler made of the kernel"),
        (["--compiler", "false {source} {image}"], 1, "has ended with 1 and without an image"),
    ],
)
def test_compilers_that_do_not_work(tmp_path, options, code, message):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = compile_kernels(tmp_path / "images", *options, script)
    assert done.returncode == code
    assert message in done.stderr
    assert not list(tmp_path.glob("images/*.image"))
