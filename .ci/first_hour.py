"""``make first-hour``: what README tells a new user to type, in an empty checkout with an empty home, with the times.

It downloads torch and builds everything twice; CCACHE_DIR and PIP_CACHE_DIR, if they are set, make that short.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_extensions"))

import doc_blocks  # noqa: E402

_KEPT = (
    "LANG",
    "LC_ALL",
    "PATH",
    "TERM",
    "TMPDIR",
    "TORCH_INDEX",
    "TORCH_VERSION",
    "http_proxy",
    "https_proxy",
)


def main() -> int:
    """Run the scripts of README one after the other; the exit code."""
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        checkout, home = Path(folder, "torch_backend"), Path(folder, "home")
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
        kept = {key: value for key, value in os.environ.items() if key in _KEPT or key.startswith(("PIP_", "CCACHE_"))}
        environment = {**kept, "HOME": str(home)}
        times = []
        for name, script in doc_blocks.scripts_of(checkout / "README.md").items():
            print(f"---- {name}", flush=True)
            timed = "".join(f"{line}\n_lap {line.split('#')[0]!r}\n" for line in script.splitlines())
            started = time.monotonic()
            code = subprocess.run(
                ["bash", "-ec", _LAP + _BEFORE.get(name, "") + timed], cwd=checkout, env=environment, check=False
            ).returncode
            times.append((name, time.monotonic() - started))
            if code:
                print(f"{name} of README.md has failed with {code}.")
                return 1
        print("\n" + "\n".join(f"{seconds:6.0f} s  {name}" for name, seconds in times))
    return 0


_LAP = """_lap() { echo "---- $((SECONDS - _before)) s: $1"; _before=$SECONDS; }; _before=0\n"""
_BEFORE = {"check": "source ~/venv/bin/activate\n"}

if __name__ == "__main__":
    sys.exit(main())
