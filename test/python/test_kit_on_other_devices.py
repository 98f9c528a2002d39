"""The conformance kit finds nothing in kinds of xcpu that `make test-conformance` leaves out."""

import pytest
from fixtures import BuildPlugin, in_process
from torch_conformance.trials import Trials

import torch_backend
from torch_backend.files import installed

ASYNC = {"TORCH_BACKEND_XCPU_ASYNC": "1"}
LATE = ASYNC | {"TORCH_BACKEND_XCPU_DELAY_US": "300"}
PROTECTED = {"TORCH_BACKEND_XCPU_PROTECT": "1"}
MODULES = ASYNC | {"TORCH_BACKEND_XCPU_MODULES": "1"}

# The core times events with the host's clock there, makes a new one per record, and stages copies.
LESS = "WITHOUT=(TB_CAP_EVENT_TIMING|TB_CAP_EVENT_RERECORD|TB_CAP_PEER)"


def tensor(*names: str) -> list[str]:
    return [f"tensor/test_{name}.py" for name in names]


LAYOUTS = tensor("sparse", "sparse_operators", "sparse_gradients", "nested", "quantized")
MEMORY = tensor("copies", "views", "placement", "serialization", "random_operators")
PROPERTIES = "tensor/test_torch_backend.py::test_properties"
ACCELERATOR = "tensor/test_accelerator.py"
TENSORS = [*tensor("copies"), "async_/test_allocator.py", "async_/test_events.py"]
VIEWS = tensor("overlap", "copies_of_any_kind", "views")
RANDOM = "compile/test_default_backend.py::test_random_operators"
TRAINING = ["training/test_models.py", "training/test_optimizers.py"]


@pytest.mark.parametrize(
    ("options", "tests"),
    [(LATE, ["async_", *LAYOUTS]), (ASYNC | PROTECTED, [*LAYOUTS, *MEMORY, *TRAINING, RANDOM])],
    ids=["late", "protected"],
)
def test_xcpu_with_options(trials: Trials, options: dict[str, str], tests: list[str]) -> None:
    trial = trials.run(installed.reference_library("xcpu"), tests, options, "--quick", seconds=600)
    assert trial.code == 0, trial.said


@pytest.mark.parametrize("tests", [["abi"], [*TENSORS, *VIEWS]], ids=["abi", "tensors"])
@pytest.mark.parametrize(
    "options", [{}, pytest.param(MODULES, marks=pytest.mark.long)], ids=["at once", "kernels on a stream"]
)
def test_a_device_that_has_to_be_bound(
    build_plugin: BuildPlugin, trials: Trials, options: dict[str, str], tests: list[str]
) -> None:
    """Every slot fails there unless its device is the calling thread's, and where ranges overlap."""
    trial = trials.run(build_plugin(source="bound.c", over="xcpu"), tests, options, "--quick", seconds=600)
    assert trial.code == 0, trial.said


def test_a_device_that_declares_less(build_plugin: BuildPlugin, trials: Trials) -> None:
    library = build_plugin(LESS, "MEMORY_UNKNOWN", source="less.c", over="xcpu")
    trial = trials.run(library, [PROPERTIES, ACCELERATOR, "async_"], LATE, "--quick", seconds=400)
    assert trial.code == 0, trial.said


@in_process(
    lambda build_plugin: (
        ASYNC | {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_PATH": build_plugin(LESS, source="less.c", over="xcpu")}
    )
)
def test_what_it_declares() -> None:
    plugin = torch_backend.active()
    assert plugin is not None
    declared = sorted(plugin.device_properties(0).capabilities)
    assert declared == ["ASYNC", "GRAPH", "HOST_ACCESS", "HOST_COHERENT", "PAGEABLE_ACCESS", "VIRTUAL_MEMORY"]
