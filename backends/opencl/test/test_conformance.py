"""The conformance kit on the installed device: the bare library, in both kinds of memory, and tensors' memory.

`make test-opencl` in torch_backend's checkout runs all levels.
"""

import pytest
from torch_conformance import check

FILES = ("copies", "moves", "pinned_memory", "serialization", "storage", "views")
TENSORS = [f"tensor/test_{name}.py" for name in FILES]


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(("tests", "options"), [(TENSORS, {}), ([], {"memory": "svm"})], ids=["buffer", "svm"])
def test_the_device_conforms(tests: list[str], options: dict[str, str]) -> None:
    report = check("ocl", quick=True, options=options, only=["abi/", *tests])
    failures = [f"{result.test}: {result.message}" for result in report.failures]
    assert report.ok, "\n".join([*report.problems, *failures])
