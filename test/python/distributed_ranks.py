"""Ranks on xcpu, for test_distributed.py and test_device_collectives.py."""

from collections.abc import Mapping
from pathlib import Path

from torch_conformance import ranks
from torch_conformance.ranks import expect_good as expect_good

ASYNC = {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "300"}
DEVICE_COLLECTIVES = {"TORCH_BACKEND_XCPU_CCL": "1", "EXPECTED_PATH": "ccl.1"}


def run_ranks(scenarios: tuple[str, ...], place: Path, count: int, env: Mapping[str, str]) -> list[dict[str, str]]:
    """What each rank says of each scenario that it came to."""
    xcpu = {"TORCH_BACKEND": "xcpu", "TORCH_BACKEND_XCPU_DEVICES": "2"}
    return ranks.run_ranks(scenarios, place, count, {**xcpu, **env})
