"""A C++ compiler for kernels that changes them first: ``$CXX`` of a process that mutants.py starts.

In the environment: MUTANTS_FOLDER, where objects are kept by what they are made of, and sources beside them; MUTANT,
what to change as JSON (see mutants.py), or null; MUTANTS_LOG, a file that gets a line for each kernel: the test that
needed it, what it is known by, and whether the change is in it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path


def preprocessed(source: Path) -> str:
    """What is left of a source when the preprocessor has left out the code for other devices."""
    return subprocess.run(["c++", "-E", "-P", source], capture_output=True, text=True, check=True).stdout


def main(arguments: list[str]) -> int:
    """Compile; returns the compiler's exit status."""
    source = next((Path(argument) for argument in arguments if argument.endswith(".cpp")), None)
    if source is None:
        return subprocess.run(["c++", *arguments], check=False).returncode
    output = Path(arguments[arguments.index("-o") + 1])
    mutant = json.loads(os.environ.get("MUTANT") or "null")
    text, before = source.read_text(), preprocessed(source)
    if mutant:
        source.write_text(text.replace(mutant["before"], mutant["after"]))
    known_by = hashlib.sha256(preprocessed(source).encode()).hexdigest()[:24]
    changed = known_by != hashlib.sha256(before.encode()).hexdigest()[:24]
    folder = Path(os.environ["MUTANTS_FOLDER"])
    kept, original = folder / f"{known_by}.so", folder / f"{known_by}.cpp"
    if not kept.exists():
        status = subprocess.run(["c++", *arguments], check=False).returncode
        if status:
            return status
        if not changed:
            original.write_text(text)
        partial = kept.with_suffix(f".{os.getpid()}")
        shutil.copy(output, partial)
        partial.rename(kept)
    shutil.copy(kept, output)
    with open(os.environ["MUTANTS_LOG"], "a") as log:
        log.write(json.dumps([os.environ.get("PYTEST_CURRENT_TEST", ""), known_by, changed]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
