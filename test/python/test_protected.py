"""Protected device memory: the host touches it through the plugin only, and dies if it does not.

That nothing of ours touches it otherwise is shown by the kit's tests, which test_kit_on_other_devices.py runs there.
"""

import signal

import pytest
from fixtures import RunPython

PROTECTED = {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_PROTECT": "1"}

STRAY = """
import ctypes, torch
x = torch.ones(4, device="xcpu")
torch.accelerator.synchronize()
print("before", flush=True)
{access}
print("after", flush=True)
"""


@pytest.mark.parametrize(
    "access",
    [
        "ctypes.c_float.from_address(x.data_ptr()).value = 2.0",
        "(x * 2).sum().item(); ctypes.string_at(x.data_ptr(), 1)",
        "y = x + 1; ctypes.memset(y.data_ptr(), 0, 16)",
    ],
)
@pytest.mark.parametrize("mode", ["0", "1"])
def test_stray_accesses_are_segmentation_faults(run_python: RunPython, access: str, mode: str) -> None:
    environment = PROTECTED | {"TORCH_BACKEND_XCPU_ASYNC": mode}
    process = run_python(STRAY.format(access=access), env=environment, expect=-signal.SIGSEGV)
    assert process.stdout == "before\n"


def test_stray_accesses_go_unnoticed_without_protection(run_python: RunPython) -> None:
    code = STRAY.format(access="print(ctypes.c_float.from_address(x.data_ptr()).value)")
    assert run_python(code, env={"TORCH_BACKEND": "xcpu"}).stdout.split() == ["before", "1.0", "after"]
