"""What device libraries take of ``backends/common`` and no device of ours uses."""

import subprocess
from pathlib import Path

from fixtures import ROOT, run_program

LATE_ERRORS = r"""
#include <cassert>
#include "common/late_errors.h"

using plugin::result;

int main() {
  plugin::late_errors late;
  int first, second;  // streams
  const result ok, busy{TB_STATUS_NOT_READY, {}}, lost{TB_STATUS_DEVICE_LOST, "lost"};
  const auto text = [](const result& r) { return r.text; };
  late.keep(0, &first, ok);
  assert(late.told(0, &first, ok).ok());

  late.keep(0, &first, {TB_STATUS_INTERNAL, "one"});
  late.keep(0, &first, {TB_STATUS_INTERNAL, "two"});
  assert(late.told(0, &second, ok).ok() && late.told(1, nullptr, ok).ok());   // of others
  assert(late.told(0, &first, busy).status == TB_STATUS_NOT_READY);           // not done
  assert(text(late.told(0, &first, lost)) == "lost");                         // the wait's own goes first
  assert(text(late.told(0, &first, ok)) == "one" && late.told(0, &first, ok).ok());

  late.keep(0, nullptr, {TB_STATUS_INTERNAL, "somewhere"});
  late.keep(0, &first, {TB_STATUS_INTERNAL, "first"});
  late.keep(0, &second, {TB_STATUS_INTERNAL, "second"});
  assert(text(late.told(0, &first, ok)) == "first" && text(late.told(0, &first, ok)) == "somewhere");
  assert(text(late.told(0, nullptr, ok)) == "second");  // a wait for the whole device
  assert(late.told(0, nullptr, ok).ok());
}
"""


def test_late_errors_are_told_once_by_the_wait_for_their_stream(tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(LATE_ERRORS)
    sdk = ROOT / "backends"
    command = ["c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{sdk}", f"-I{ROOT / 'include'}"]
    run_program(*command, "main.cpp", sdk / "common" / "result.cpp", "-o", "main", cwd=tmp_path)
    assert subprocess.run([tmp_path / "main"]).returncode == 0
