"""Write docs/reference/ecosystem_results.md: ``python .ci/ecosystem.py xcpu`` runs the examples, prints the page.

Each example runs twice, without a device and with it; programs for CUDA run with the device's name in place of CUDA's.
The libraries' own tests are downloaded and run as well (library_suites.py).
"""

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


if __name__ == "__main__":
    device = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        table = rows(device, Path(folder)) + library_suites.rows(device, Path(folder))
    print("# Libraries: what was run\n")
    print("`make ecosystem` runs `examples/ecosystem` and tests of the libraries' source distributions on the CPU and")
    print("on the device, and writes this page. The distributions of Lightning and TorchMetrics have no tests, that of")
    print("Transformers lacks files which its tests of models import, and that of safetensors needs Rust to unpack.\n")
    print(f"| software | program | cpu | {device} | difference |\n|---|---|---|---|---|")
    print("\n".join(table))
