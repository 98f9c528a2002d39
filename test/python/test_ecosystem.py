"""The examples for libraries on top of PyTorch run, each in its own process. `make test-ecosystem` installs them."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torch_backend.files import patience

EXAMPLES = Path(__file__).parents[2] / "examples" / "ecosystem"
LIBRARIES = {path.stem: path.stem.split("_")[0] for path in sorted(EXAMPLES.glob("*.py"))}
TORCHRUN = ("-m", "torch.distributed.run", "--nproc_per_node=2")
# Two ranks: what comes before the example's path, and after it.
RANKS = {
    "torchrun": (TORCHRUN, "accelerate_training", ()),
    "accelerate launch": (("-m", "accelerate.commands.launch", "--num_processes=2"), "accelerate_training", ()),
    "Lightning's DDP": ((), "lightning_training", ("ddp",)),
    "Lightning's FSDP": ((), "lightning_training", ("fsdp",)),
}


def run(name: str, *arguments: str | os.PathLike[str], all_lines: bool = False) -> str:
    """The last line that a program prints while the device is active, or all."""
    process = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"TORCH_BACKEND": name, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=patience.seconds(240),
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "torch_backend could not" not in process.stderr, process.stderr
    return process.stdout if all_lines else process.stdout.splitlines()[-1]


def needs(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed; `make test-ecosystem` installs it")


def test_there_are_examples() -> None:
    libraries = {
        "accelerate",
        "diffusers",
        "lightning",
        "peft",
        "ray",
        "safetensors",
        "torchao",
        "torchmetrics",
        "transformers",
    }
    assert set(LIBRARIES.values()) == libraries


@pytest.mark.parametrize("example", LIBRARIES)
def test_example(name: str, example: str) -> None:
    needs(LIBRARIES[example])
    assert name in run(name, EXAMPLES / f"{example}.py")


def test_a_trainer_that_compiles_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("transformers")
    monkeypatch.setenv(f"TORCH_BACKEND_{name.upper()}_DEVICES", "1")
    assert name in run(name, EXAMPLES / "transformers_training.py", "compiled")


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("launcher", RANKS)
def test_ranks_train_one_model(name: str, launcher: str) -> None:
    before, example, after = RANKS[launcher]
    needs(LIBRARIES[example])
    assert f"2 {name}" in run(name, *before, EXAMPLES / f"{example}.py", *after)


@pytest.mark.usefixtures("two_devices")
def test_accelerate_tests_itself(name: str) -> None:
    needs("accelerate")
    said = run(name, "-m", "accelerate.commands.accelerate_cli", "test", all_lines=True)
    assert f"Device: {name}:1" in said
    assert "Test is a success!" in said


def test_accelerates_fsdp_with_weights_on_the_cpu_has_collectives_for_both(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("accelerate")
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    launched = {"ACCELERATE_USE_FSDP": "true", "FSDP_OFFLOAD_PARAMS": "true"}  # by accelerate launch
    for variable, value in (rank | launched).items():
        monkeypatch.setenv(variable, value)
    code = """
import accelerate, sys, torch
accelerate.PartialState()
for device in ("cpu", sys.argv[1]):
    torch.distributed.all_reduce(torch.ones(2, device=device))
print("both")
torch.distributed.destroy_process_group()
"""
    assert run(name, "-c", code, name) == "both"


GENERATION = """
import sys, torch, transformers
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4}
torch.manual_seed(0)
config = transformers.LlamaConfig(vocab_size=128, **sizes, pad_token_id=0, eos_token_id=None)
model = transformers.LlamaForCausalLM(config).eval()
prompt = torch.randint(1, 128, (2, 9))
expected = model.generate(prompt, max_new_tokens=20, do_sample=False)
model, prompt = model.to(sys.argv[1]), prompt.to(sys.argv[1])
for cache in ("offloaded", "offloaded_static"):
    found = model.generate(prompt, max_new_tokens=20, do_sample=False, cache_implementation=cache)
    assert found.device.type == sys.argv[1]
    assert found.tolist() == expected.tolist(), cache
print("the same tokens")
"""


@pytest.mark.parametrize("late", ["", "0-300"], ids=["as it is", "asynchronous, with delays"])
def test_generating_with_an_offloaded_cache(name: str, late: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("transformers")
    if late:
        if name != "xcpu":
            pytest.skip("delays are an option of xcpu")
        monkeypatch.setenv(f"TORCH_BACKEND_{name.upper()}_ASYNC", "1")
        monkeypatch.setenv(f"TORCH_BACKEND_{name.upper()}_DELAY_US", late)
    assert run(name, "-c", GENERATION, name) == "the same tokens"


BATCHES = """
import sys, torch, transformers
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
torch.manual_seed(0)
config = transformers.LlamaConfig(vocab_size=128, **sizes, pad_token_id=0, eos_token_id=None)
model = transformers.LlamaForCausalLM(config).eval()
prompts = [torch.randint(1, 128, (3 + 11 * i,)).tolist() for i in range(4)]
length = {"max_new_tokens": 12, "eos_token_id": -1, "pad_token_id": 0}
greedy = transformers.GenerationConfig(**length, do_sample=False)
sampled = transformers.GenerationConfig(**length, do_sample=True)
expected = [model.generate(torch.tensor([p]), generation_config=greedy)[0, len(p):].tolist() for p in prompts]
model, graph = model.to(sys.argv[1]), torch.get_device_module().CUDAGraph
replay, replays = graph.replay, []
graph.replay = lambda self: (replays.append(self), replay(self))
for overlap in (False, True):
    batches = transformers.ContinuousBatchingConfig(
        use_cuda_graph=True, use_async_batching=overlap, num_blocks=64, max_batch_tokens=64
    )
    options = {"continuous_batching_config": batches, "progress_bar": False}
    results = model.generate_batch(inputs=prompts, generation_config=greedy, **options)
    assert [result.generated_tokens for result in results.values()] == expected, overlap
    drawn = [model.generate_batch(inputs=prompts, generation_config=sampled, **options) for _ in range(2)]
    first, second = ([result.generated_tokens for result in results.values()] for results in drawn)
    assert first != second and all(len(set(tokens)) > 1 for tokens in first + second)
    print("with graphs" if replays else "without graphs")
    replays.clear()
"""


@pytest.mark.parametrize(("modules", "found"), [("0", "without graphs"), ("1", "with graphs")])
def test_steps_of_batches_are_replayed(name: str, modules: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where kernels are the device's; else the host runs them, which cannot be captured."""
    needs("transformers")
    if name != "xcpu":
        pytest.skip("whether it compiles kernels is an option of xcpu")
    monkeypatch.setenv("TORCH_BACKEND_XCPU_ASYNC", "1")
    monkeypatch.setenv("TORCH_BACKEND_XCPU_DELAY_US", "0-100")
    monkeypatch.setenv("TORCH_BACKEND_XCPU_MODULES", modules)
    assert run(name, "-c", BATCHES, name, all_lines=True).splitlines()[-2:] == [found] * 2


def test_a_cache_of_batches_leaves_memory_to_the_host(name: str) -> None:
    """Where the device's memory is the host's, which has to have some left."""
    initialization = pytest.importorskip("transformers.generation.continuous_batching.initialization")
    configuration = pytest.importorskip("transformers").ContinuousBatchingConfig
    shares = []
    for given in (None, 0.7):
        config = configuration(max_memory_percent=given)
        initialization.resolve_max_memory_percent(config, has_logit_processors=False, device=torch.device(name))
        shares.append(config.max_memory_percent)
    properties = torch.get_device_module(name).get_device_properties()
    assert shares[1] == 0.7
    if "HOST_ACCESS" in properties.capabilities:
        available = pytest.importorskip("psutil").virtual_memory().available
        assert shares[0] * properties.total_memory == pytest.approx(0.9 * available / 2, rel=0.2)
    else:
        assert shares[0] == 0.9


def test_lightnings_modules_know_where_they_were_moved(name: str) -> None:
    needs("lightning")
    code = """
import sys, lightning, torch
model = lightning.LightningModule()
moved = [str(getattr(model, sys.argv[1])(where).device) for where in (1, None, torch.device(sys.argv[1], 1))]
print(*moved, model.cpu().device)
"""
    assert run(name, "-c", code, name) == f"{name}:1 {name}:0 {name}:1 cpu"


def test_libraries_are_adapted_if_they_were_imported_before(name: str) -> None:
    needs("lightning")
    code = f"""
        import accelerate, lightning, lightning_fabric, pytorch_lightning, safetensors.torch
        import transformers.modeling_utils
        import torch, torch_backend
        torch_backend.activate({name!r})
        found = [
            accelerate.Accelerator().device.type,
            lightning.Trainer(devices=1, logger=False).strategy.root_device.type,
            lightning.Fabric(accelerator="gpu", devices=1).device.type,
            pytorch_lightning.Trainer(devices=1, logger=False, precision="16-mixed").strategy.root_device.type,
            lightning_fabric.Fabric(devices=1).device.type,
            transformers.TrainingArguments(bf16=True).device.type,
            *(type(key).__name__ for key in accelerate.utils.get_max_memory()),
        ]
        assert safetensors.safe_open is safetensors.torch.safe_open is transformers.modeling_utils.safe_open
        print(found[:6], torch.amp.GradScaler().is_enabled(), "int" in found)
    """
    environment = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    process = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", "\n".join(line[8:] for line in code.splitlines())],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == f"{[name] * 6} True True"
