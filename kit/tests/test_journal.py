"""What a run that did not come to its end leaves behind."""

from pathlib import Path

import pytest
from torch_conformance.journal import Journal
from torch_conformance.results import Result

RUN = {"device": "acme", "only": ["a"]}
ONE = Result("tensor/test_a.py::test_b", "failed", message="é", facts={"op": "add"})
TWO = Result("tensor/test_a.py::test_c", "passed")


def test_a_killed_run_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "report.json.partial"
    journal = Journal(path, RUN, resume=False)
    journal.add(ONE)  # and is killed here, while it writes the next
    path.write_text(path.read_text() + '{"test": "tens')
    again = Journal(path, RUN, resume=True)
    assert again.before == (ONE,)
    again.add(TWO)
    assert Journal(path, RUN, resume=True).before == (ONE, TWO)
    assert Journal(path, RUN, resume=False).before == ()
    assert Journal(path, RUN, resume=True).before == ()


def test_another_run_does_not_go_on_with_it(tmp_path: Path) -> None:
    path = tmp_path / "report.json.partial"
    with pytest.raises(ValueError, match="There is nothing to go on with"):
        Journal(path, RUN, resume=True)
    Journal(path, RUN, resume=False).close()
    with pytest.raises(ValueError, match="of a run with another only: \\['a'\\], not \\[\\]"):
        Journal(path, {**RUN, "only": []}, resume=True)
    path.write_text("nothing\n")
    with pytest.raises(ValueError, match="has no results of a run"):
        Journal(path, RUN, resume=True)
