"""A report as JUnit XML, for CI systems."""

from pathlib import Path
from xml.etree import ElementTree

from torch_conformance import coverage
from torch_conformance.report.findings import Findings
from torch_conformance.results import FAILURES, Result, count, failed


def write(report: Findings, path: Path) -> None:
    """Write the report to ``path``: a test suite per level, or per file of PyTorch's tests.

    What is known to fail, not offered, skipped or not run is "skipped", with the reason.
    """
    root = ElementTree.Element("testsuites", name=f"torch_backend conformance of {report.device.name}")
    for name, results in report.groups().items():
        _add_suite(root, name, results)
    if report.problems:
        suite = ElementTree.SubElement(
            root, "testsuite", name="run", tests=str(len(report.problems)), errors=str(len(report.problems))
        )
        for number, problem in enumerate(report.problems, start=1):
            case = ElementTree.SubElement(suite, "testcase", classname="run", name=f"problem {number}")
            ElementTree.SubElement(case, "error", message=_legal(problem.splitlines()[0])).text = _legal(problem)
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _add_suite(root: ElementTree.Element, name: str, results: list[Result]) -> None:
    counts = count(results)
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=name,
        tests=str(len(results)),
        failures=str(failed(counts)),
        errors="0",
        skipped=str(len(results) - counts["passed"] - failed(counts)),
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", name="not offered", value=str(counts["not offered"]))
    if facts := coverage.facts_of(results):
        for standing, number in coverage.entries_by_standing(facts).items():
            ElementTree.SubElement(properties, "property", name=f"operators {standing}", value=str(number))
    for result in results:
        file, _, test = result.test.partition("::")
        classname = file.removesuffix(".py").replace("/", ".")
        case = ElementTree.SubElement(
            suite, "testcase", classname=classname, name=_legal(test), time=f"{result.seconds:.4f}"
        )
        if result.outcome in FAILURES:
            message = f"{result.outcome}: {result.message}"
            ElementTree.SubElement(case, "failure", message=_legal(message)).text = _legal(result.details)
        elif result.outcome != "passed":
            ElementTree.SubElement(case, "skipped", message=_legal(f"{result.outcome}: {result.message}"))


def _legal(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold."""
    return "".join(character for character in text if character >= " " or character in "\t\n")
