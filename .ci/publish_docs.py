"""``.ci/publish_docs.py HTML SITE VERSION``: puts a built documentation into a site of static files, by versions.

versions.json names the folders, the newest first, which the menu on every page reads; index.html leads to the newest.
"""

import json
import re
import shutil
import sys
from pathlib import Path

_FORWARD = '<!doctype html><meta http-equiv="refresh" content="0; url={0}/"><a href="{0}/">{0}</a>\n'


def publish(html: Path, site: Path, version: str) -> list[str]:
    """The versions that are there now; one that was there is replaced."""
    if not re.fullmatch(r"\d+(\.\d+)+", version):
        raise SystemExit(f"{version!r} is no version; expected one like 0.2.0")
    shutil.rmtree(site / version, ignore_errors=True)
    shutil.copytree(html, site / version)
    versions = [folder.name for folder in site.iterdir() if re.fullmatch(r"\d+(\.\d+)+", folder.name)]
    versions.sort(key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    (site / "versions.json").write_text(json.dumps(versions) + "\n", encoding="utf-8")
    (site / "index.html").write_text(_FORWARD.format(versions[0]), encoding="utf-8")
    (site / ".nojekyll").touch()  # else GitHub's pages leave out _static
    return versions


if __name__ == "__main__":
    print(*publish(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
