"""The conformance kit on the installed device: the bare library, tensors; the library with shared memory."""

import pytest
from torch_conformance import LEVELS, check


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(("levels", "options"), [(2, {}), (1, {"memory": "svm"})], ids=["buffer", "svm"])
def test_the_device_conforms(levels: int, options: dict[str, str]) -> None:
    report = check("ocl", levels=LEVELS[:levels], quick=True, options=options)
    failures = [f"{result.test}: {result.message}" for result in report.failures]
    assert report.ok, "\n".join([*report.problems, *failures])
