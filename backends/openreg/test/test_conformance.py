"""The conformance kit on the installed device: the bare library, and tensors; the library with streams."""

import pytest
from torch_conformance import LEVELS, check


@pytest.mark.parametrize(("levels", "options"), [(2, {}), (1, {"streams": "1"})], ids=["", "streams"])
def test_the_device_conforms(levels: int, options: dict[str, str]) -> None:
    report = check("openreg", levels=LEVELS[:levels], quick=True, options=options)
    failures = [f"{result.test}: {result.message}" for result in report.failures]
    assert report.ok, "\n".join([*report.problems, *failures])
