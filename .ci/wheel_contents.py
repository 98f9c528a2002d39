"""Whether wheels may be published: ``wheel_contents.py WHEEL...`` prints their sizes, and what does not belong in them.

A wheel has one package and its metadata, with the license, and no caches and objects. A native library looks for others
beside itself alone, has no debug information, and names no file of the machine that it was built on. Needs readelf, of
binutils.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

STRAY = re.compile(r"(^|/)(__pycache__|build|\.git)/|\.(pyc|o|a|d|ninja|orig)$")
# Paths to sources, as assertions have them, or to folders of packages; the compiler's own headers are everybody's.
MACHINE = re.compile(
    rb"(?<![\w.+-])/(?!usr/(?:include|lib)/)(?:[\w.+-]+/)+(?:[\w.+-]+\.(?:cc?|cpp|hp?p?)\b|site-packages/)"
)
RUNPATH = re.compile(r"\(R(?:UN)?PATH\).*\[(.*)\]")


def findings(wheel: Path) -> Iterator[str]:
    """What is wrong with a wheel, a line each."""
    distribution, version = wheel.name.split("-")[:2]
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        metadata = f"{distribution}-{version}.dist-info"
        packages = {name.split("/")[0] for name in names} - {metadata}
        if packages != {distribution}:
            yield f"it has {sorted(packages)} where it should have {distribution} alone"
        if not any(name.startswith(metadata) and PurePosixPath(name).name == "LICENSE" for name in names):
            yield "it has no LICENSE"
        yield from (f"{name} does not belong there" for name in names if STRAY.search(name))
        for name in names:
            if re.search(r"\.so(\.\d+)*$", name):
                library = Path(archive.extract(name, folder))
                yield from (f"{name} {finding}" for finding in _findings_in_library(library))


def _findings_in_library(path: Path) -> Iterator[str]:
    """What is wrong with a native library."""
    read = subprocess.run(["readelf", "-dSW", str(path)], stdout=subprocess.PIPE, text=True, check=True).stdout
    for runpath in RUNPATH.findall(read):
        if not all(part == "$ORIGIN" or part.startswith("$ORIGIN/") for part in runpath.split(":")):
            yield f"looks for libraries in {runpath}"
    if ".debug_info" in read:
        yield "has debug information"
    named = sorted({match.decode() for match in MACHINE.findall(path.read_bytes())})
    if named:
        yield f"names {len(named)} files of the machine that built it, {named[0]} for one"


def main(wheels: list[str]) -> int:
    """Print what was found; 1 if anything was."""
    found = 0
    for wheel in map(Path, wheels):
        with zipfile.ZipFile(wheel) as archive:
            size, files = sum(each.file_size for each in archive.infolist()), len(archive.namelist())
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {size / 1e6:.1f} MB in {files} files")
        for finding in findings(wheel):
            found += 1
            print(f"  {finding}")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
