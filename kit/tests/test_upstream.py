"""PyTorch's own tests, from a checkout: which are run, and how what they find is grouped."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from torch_conformance import InPyTorch, UpstreamReport, check_upstream, expectations, upstream
from torch_conformance.report import html, junit
from torch_conformance.results import count
from torch_conformance.upstream import device_generic_files

TESTS = """
import enum
import os
import unittest
import torch
from beside import TWO
from neighbour import SIZE
from torch.testing._internal.common_device_type import instantiate_device_type_tests, dtypes, onlyCUDA
from torch.testing._internal.common_utils import TestCase

class TestThings(TestCase):
    @dtypes(torch.float32, torch.int64)
    def test_ones(self, device, dtype):
        self.assertEqual(torch.ones(SIZE, device=device, dtype=dtype).sum().item(), SIZE)

    @onlyCUDA
    def test_cuda(self, device):
        raise AssertionError

    @dtypes(torch.float32, torch.int64)
    def test_wrong(self, device, dtype):
        ones = torch.ones(TWO, device=device, dtype=dtype)
        self.assertEqual(ones, ones.cpu() if torch.device(device).type == "cpu" else ones + 1)

    @dtypes(torch.float32, torch.int64)
    def test_wrong_everywhere(self, device, dtype):
        self.assertEqual(torch.ones(2, device=device, dtype=dtype), torch.zeros(2, device=device, dtype=dtype))

    def test_cannot_pass_on_the_cpu(self, device):
        with self.assertRaisesRegex(RuntimeError, "it fails"):
            if torch.device(device).type != "cpu":
                raise RuntimeError("it falls")

    @unittest.expectedFailure
    def test_fails_as_expected(self, device):
        self.assertEqual(1, 2)

    @unittest.expectedFailure
    def test_passes_unexpectedly(self, device):
        self.assertNotEqual(torch.device(device).type, "cpu")

    def test_crashes(self, device):
        if torch.device(device).type != "cpu":
            os.abort()

class TestHost(TestCase):
    def test_no_device(self):
        raise AssertionError

HardwareClassification = enum.Enum("HardwareClassification", "GENERIC ACCELERATOR CUDA")

class TestGeneric(TestCase):
    hw_classification = HardwareClassification.GENERIC

    def test_generic(self, device):
        raise AssertionError

class TestOtherDevice(TestCase):
    hw_classification = HardwareClassification.CUDA

    def test_other_device(self, device):
        raise AssertionError

class TestAccelerator(TestCase):
    hw_classification = HardwareClassification.ACCELERATOR

    def test_accelerator(self, device):
        torch.ones(2, device=device)

for made in (TestThings, TestGeneric, TestOtherDevice, TestAccelerator):
    instantiate_device_type_tests(made, globals())
"""

UNLOADABLE = """
from torch import no_such_thing
from torch.testing._internal.common_device_type import instantiate_device_type_tests
instantiate_device_type_tests(TestNothing, globals())
"""

UNLOADABLE_ON_A_DEVICE = """
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase
if torch.accelerator.is_available():
    raise TypeError("a device is in the way")

class TestLoaded(TestCase):
    def test_passes(self, device):
        pass

instantiate_device_type_tests(TestLoaded, globals())
"""

MANY = """
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests, dtypes
from torch.testing._internal.common_utils import TestCase, parametrize

class TestMany(TestCase):
    @parametrize("size", range(5))
    @dtypes(torch.float32, torch.int64)
    def test_many(self, device, dtype, size):
        self.assertEqual(torch.ones(size, device=device, dtype=dtype).sum().item(), size)

    def test_one(self, device):
        torch.ones(2, device=device)

instantiate_device_type_tests(TestMany, globals())
"""

COPY = """
import torch
import torch_acme
import torch_acme.testing
from torch.testing._internal.common_device_type import (
    dtypes, dtypesIfPRIVATEUSE1, instantiate_device_type_tests, onlyPRIVATEUSE1
)
from torch.testing._internal.common_utils import TestCase

NAME = torch.acme.get_device_name(0)

class TestCopy(TestCase):
    def test_names(self, device):
        x = torch.ones(2, device="acme").acme()
        self.assertTrue(x.is_acme and torch_acme.acme.is_available() and torch.acme.device_count())
        self.assertEqual(x.device.type, "acme")

    def test_wrong(self, device):
        self.assertEqual(torch.ones(2, device=device).is_acme, torch.device(device).type == "cpu")

    @onlyPRIVATEUSE1
    def test_wrong_everywhere(self, device):
        self.assertFalse(torch.ones(2, device=device).is_acme)

    @dtypesIfPRIVATEUSE1(torch.int32)
    @dtypes(torch.float32)
    def test_other_dtypes(self, device, dtype):
        torch.nn.functional.gelu(torch.ones(2, device=device, dtype=dtype))

    def test_of_the_vendor(self, device):
        torch_acme.fast_gelu(torch.ones(2, device=device))

instantiate_device_type_tests(TestCopy, globals(), only_for="privateuse1")
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("py torch")
    (root / "test" / "nested").mkdir(parents=True)
    (root / "test" / "nested" / "test_things.py").write_text(TESTS)
    (root / "test" / "test_host.py").write_text("def test_host():\n    raise AssertionError\n")
    (root / "test" / "nested" / "beside.py").write_text("TWO = 2\n")
    (root / "test" / "neighbour.py").write_text("SIZE = 3\n")
    (root / "test" / "test_unloadable.py").write_text(UNLOADABLE)
    (root / "test" / "test_unloadable_on_a_device.py").write_text(UNLOADABLE_ON_A_DEVICE)
    (root / "test" / "test_gone.py").symlink_to("nowhere.py")
    (root / "version.txt").write_text("1.0.0a0\n")
    (root / "conftest.py").write_text("raise RuntimeError('not for us')\n")
    return root


@pytest.fixture(scope="module")
def report(checkout: Path, name: str, tmp_path_factory: pytest.TempPathFactory) -> UpstreamReport:
    expected = tmp_path_factory.mktemp("expected") / "expectations.toml"
    expected.write_text(f"[[known]]\ntest = 'upstream/*test_wrong_{name}_int64'\nreason = 'integers are odd'\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upstream, "_MAX_NAMED", 3)  # of five that fail
        return check_upstream(name, checkout, expected=expected, workers=1)


def outcome(report: UpstreamReport, test: str) -> str:
    (result,) = (result for result in report.results if test in result.test)
    return result.outcome


def test_only_tests_of_the_device_are_run(report: UpstreamReport, name: str) -> None:
    things = report.groups()["nested/test_things.py"]
    assert len(report.groups()) == 3
    assert count(things) == {
        "passed": 4,
        "failed": 2,
        "crashed": 1,
        "hung": 0,
        "known": 4,
        "not offered": 1,
        "skipped": 0,
        "not run": 0,
    }
    assert outcome(report, f"test_ones_{name}_int64") == "passed"
    assert outcome(report, "test_accelerator") == "passed"  # and what is classified as about no device is not run
    assert not report.ok


def test_pytorchs_skips_are_not_offered_with_its_reason(report: UpstreamReport, name: str) -> None:
    (result,) = (result for result in report.results if "test_cuda" in result.test)
    assert result.outcome == "not offered"
    assert result.message.startswith("PyTorch's test leaves this device out: ")
    assert name in result.message or "cuda" in result.message


def test_a_failure_that_pytorch_expects_passes(report: UpstreamReport) -> None:
    assert outcome(report, "test_fails_as_expected") == "passed"


def test_failures_are_grouped_by_cause(report: UpstreamReport) -> None:
    assert {text: len(results) for text, results in report.causes()} == {
        "values differ": 1,
        "PyTorch expects a failure, and the test passes": 1,
        "the process crashed: Aborted": 1,
        "could not be loaded: TypeError: a device is in the way": 1,
    }


def test_expectations_hold_for_them(report: UpstreamReport) -> None:
    (known,) = (result for result in report.results if result.message.startswith("integers are odd"))
    assert known.outcome == "known"
    assert not report.problems


def test_what_fails_on_the_cpu_too_is_no_failure_of_the_device(report: UpstreamReport) -> None:
    twins = [result for result in report.results if "test_wrong_everywhere" in result.test]
    assert len(twins) == 2
    assert all(result.outcome == "known" for result in twins)
    assert all(result.message.startswith("fails on the CPU too: Tensor-likes") for result in twins)


def test_what_fails_on_the_cpu_in_another_way_is_noted(report: UpstreamReport) -> None:
    (result,) = (result for result in report.results if "test_cannot_pass_on_the_cpu" in result.test)
    assert result.outcome == "known"
    assert re.fullmatch(r".*it falls.*; fails on the CPU in another way: RuntimeError not raised", result.message)
    (note,) = (note for note in report.notes if "in another way" in note)
    assert note.endswith(": " + result.test.removeprefix("upstream/"))


def test_a_file_that_the_cpu_cannot_load_either_is_no_failure_of_the_device(report: UpstreamReport) -> None:
    (result,) = report.groups()["test_unloadable.py"]
    assert result.outcome == "known"
    assert "\n" not in result.message
    assert result.message.startswith(
        "fails on the CPU too: could not be loaded: ImportError: cannot import name 'no_such_"
    )
    assert f"test_unloadable.py: {result.message}" in report.notes


def test_a_file_that_the_device_alone_cannot_load_fails(report: UpstreamReport) -> None:
    (result,) = report.groups()["test_unloadable_on_a_device.py"]
    assert (result.test, result.outcome) == ("upstream/test_unloadable_on_a_device.py", "failed")
    assert result.message == "could not be loaded: TypeError: a device is in the way"


def test_a_checkout_of_which_nothing_can_be_loaded_is_a_problem(name: str, checkout: Path) -> None:
    report = check_upstream(name, checkout, only=["test_unloadable.py"], workers=1)
    assert not report.failures
    assert not report.ok
    assert report.problems[0].startswith("No test that matches 'test_unloadable.py' was found in what could be loaded")


def test_another_version_of_torch_is_noted(report: UpstreamReport) -> None:
    assert "The checkout is torch 1.0.0a0" in report.notes[0]


def test_the_report_is_json_junit_and_html(report: UpstreamReport, tmp_path: Path) -> None:
    content = json.loads(json.dumps(report.to_json()))
    assert content["files"]["nested/test_things.py"]["passed"] == 4
    junit.write(report, tmp_path / "report.xml")
    assert 'testsuite name="nested/test_things.py" tests="12" failures="3"' in (tmp_path / "report.xml").read_text()
    page = html.render(report)
    assert report.verdict_text() in page
    assert "4 passed, 4 failed" in page
    assert "<b>nested/test_things.py</b>" in page
    assert "PyTorch&#39;s test leaves this device out" in page


def test_only_files_that_a_pattern_can_mean_are_loaded(checkout: Path) -> None:
    root = checkout / "test"
    assert device_generic_files(root, ["test_things.py::TestThings*"]) == [root / "nested" / "test_things.py"]
    assert device_generic_files(root, ["test_ones"]) == [
        root / "nested" / "test_things.py",
        root / "test_unloadable.py",
        root / "test_unloadable_on_a_device.py",
    ]
    with pytest.raises(ValueError, match=r"No device-generic test file below .* matches 'test_host.py'"):
        device_generic_files(root, ["test_host.py"])


@pytest.mark.parametrize("route", ["of torch_backend", "by PyTorch's name", "in PyTorch's tree"])
def test_quick_runs_a_few_of_the_tests_that_are_made_of_a_function(name: str, route: str, tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_many.py").write_text(MANY)
    device: str | InPyTorch = name
    if route == "by PyTorch's name":
        device = InPyTorch(name, ("torch_backend",))
    elif route == "in PyTorch's tree":
        device, name = InPyTorch("cpu"), "cpu"
    report = check_upstream(device, tmp_path, quick=True, workers=1)
    assert report.ok
    assert [result.test.split("::")[2] for result in report.results] == [
        f"test_many_size_0_{name}_float32",
        f"test_many_size_1_{name}_int64",
        f"test_many_size_3_{name}_float32",
        f"test_many_size_4_{name}_int64",
        f"test_one_{name}",
    ]
    assert report.to_json()["quick"] is True


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no folder 'test'"):
        device_generic_files(tmp_path / "test")
    (tmp_path / "test").mkdir()
    with pytest.raises(ValueError, match="calls instantiate_device_type_tests"):
        device_generic_files(tmp_path / "test")


def test_copies_for_another_device_are_run_under_the_name_of_this(name: str, tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    file = tmp_path / "test" / "test_copy.py"
    file.write_text(COPY)
    report = check_upstream(name, tmp_path, workers=1)
    assert not report.problems
    outcomes = {result.test.split("::")[2].removesuffix(f"_{name}"): result.outcome for result in report.results}
    assert outcomes == {
        "test_names": "passed",
        "test_wrong": "failed",
        "test_wrong_everywhere": "known",
        "test_of_the_vendor": "known",
        f"test_other_dtypes_{name}_int32": "known",
    }
    assert file.read_text() == COPY


ROOT = Path(__file__).parents[2]


def test_the_documentation_has_the_list_of_what_fails_on_xcpu_alone() -> None:
    file = Path(__file__).with_name("expected_upstream_xcpu.toml")
    entries = expectations.read(file, "xcpu")
    guide = (ROOT / "docs" / "guides" / "check_a_device.md").read_text()
    rows = [f"| `{entry.test.removeprefix('upstream/')}` | {entry.count} | {entry.reason} |" for entry in entries]
    assert [row for row in guide.splitlines() if re.match(r"\| `[\w/]+\.py::", row)] == rows
    alone: Counter[str] = Counter()
    for entry in entries:
        assert entry.count is not None
        alone[entry.test.removeprefix("upstream/").split("::")[0]] += entry.count
    figures = re.findall(r"^\| ([\w/]+\.py)[^|]* \| \d+ \| (\d+) \|", guide, re.MULTILINE)
    assert {name: int(number) for name, number in figures if number != "0"} == alone
    commits = re.findall(r"\bcommit (\w+)", file.read_text())
    assert len(commits) == 1
    assert f"at commit {commits[0]}" in guide
