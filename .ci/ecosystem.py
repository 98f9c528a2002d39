"""Write docs/reference/ecosystem_results.md: ``python .ci/ecosystem.py xcpu`` runs the examples, prints the page.

Each example runs twice, without a device and with it; programs for CUDA run with the device's name in place of CUDA's.
The libraries' own tests are downloaded and run as well (library_suites.py). ``--checkout transformers=PATH`` runs those
of a checkout of its repository, and that code: of libraries whose source distributions have no tests, it is needed.
What a checkout needs in other versions than those installed is taken from the folders of PYTHONPATH
(``pip install --target FOLDER "huggingface_hub<2" httpx``).
"""

import argparse
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import library_suites

EXAMPLES = Path(__file__).parents[1] / "examples" / "ecosystem"
REASONS: dict[str, str] = {}  # of differences, by file


def passes(path: Path, device: str | None) -> bool:
    """Whether a program ends well; why not goes to stderr."""
    settings = {"OMP_NUM_THREADS": "1", "TORCH_BACKEND": device or "none"}
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    command = [sys.executable, *(launcher if path.name.startswith("ranks_") else ()), str(path)]
    process = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    if process.returncode:
        print(f"{path.name} on {device or 'cpu'}: {process.stderr[-2000:]}", file=sys.stderr)
    return process.returncode == 0


def rows(device: str, folder: Path) -> list[str]:
    """The table's, the examples of libraries first."""
    said = {True: "passes", False: "fails"}
    found = []
    for path in sorted(EXAMPLES.glob("*.py")):
        library = path.stem.split("_")[0]
        results = f"{said[passes(path, None)]} | {said[passes(path, device)]}"
        found.append(f"| {library} {importlib.metadata.version(library)} | {path.name} | {results} |")
    for path in sorted((EXAMPLES / "cuda").glob("*.py")):
        renamed = folder / path.name
        renamed.write_text(path.read_text().replace("cuda", device))
        version = importlib.metadata.version("torch").split("+")[0]
        found.append(f"| torch {version} | cuda/{path.name} | written for CUDA | {said[passes(renamed, device)]} |")
    return [f"{row} {REASONS.get(row.split(' | ')[1], '')} |" for row in found]


def _checkout(text: str) -> tuple[str, Path]:
    library, _, path = text.partition("=")
    known = sorted({suite.library for suite in library_suites.SUITES})
    if library not in known:
        raise argparse.ArgumentTypeError(f"{text!r} does not begin with one of {', '.join(known)} and '='")
    if not path or not Path(path, "tests").is_dir():
        raise argparse.ArgumentTypeError(f"{path!r} is no checkout of {library}: it has no folder tests")
    return library, Path(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("device")
    parser.add_argument("--checkout", action="append", default=[], type=_checkout, metavar="LIBRARY=PATH")
    arguments = parser.parse_args()
    device = arguments.device
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = rows(device, folder) + library_suites.rows(device, folder, dict(arguments.checkout))
    print("# Libraries: what was run\n")
    print("`make ecosystem` runs `examples/ecosystem` and tests of the libraries on the CPU and on the device, and")
    print(
        "writes this page. The tests are those of the source distributions. Where these have none, or lack files that"
    )
    print(
        'their tests import, `make ecosystem CHECKOUTS="transformers=PATH lightning=PATH"` takes them from checkouts of'
    )
    print("the libraries' repositories, and the code with them.\n")
    print(f"| software | program | cpu | {device} | difference |\n|---|---|---|---|---|")
    print("\n".join(table))
