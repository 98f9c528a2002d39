"""``make first-hour``: what README and the tutorial tell a new user to type, in an empty home, with the times.

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
_CHAPTERS = ("1_a_project.md", "2_your_sdk.md", "6_a_wheel.md")  # the others are about what lies between


def main() -> int:
    """Run the scripts of README one after the other, then the tutorial; the exit code."""
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        home = Path(folder)
        checkout = home / "torch_backend"
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
        started = time.monotonic()
        if not follow_tutorial(checkout / "docs" / "tutorial", home, environment):
            return 1
        times.append(("tutorial: a project, an SDK, a wheel", time.monotonic() - started))
        print("\n" + "\n".join(f"{seconds:6.0f} s  {name}" for name, seconds in times))
    return 0


def follow_tutorial(tutorial: Path, home: Path, environment: dict[str, str]) -> bool:
    """Type the commands of the chapters up to a linked SDK, and of that about a wheel, in README's environment."""
    (home / "empty").mkdir()
    shell = doc_blocks.Shell(home / "empty", {**environment, "COLUMNS": "120", "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    shell.run("source ~/venv/bin/activate")
    for page in (tutorial / name for name in _CHAPTERS):
        print(f"---- {page.name}", flush=True)
        blocks = [block for block in doc_blocks.blocks_of(page) if block.language == "console"]
        typed = [each for block in blocks if "sample" not in block.options for each in doc_blocks.commands_of(block)]
        for script in doc_blocks.scripts_of(page).values():
            typed += [doc_blocks.Command(line, None) for line in script.splitlines()]
        for command in typed:
            started = time.monotonic()
            process = shell.run(command.text)
            said, seconds = process.stdout + process.stderr, time.monotonic() - started
            print(f"{said}---- {seconds:.0f} s: {command.text}", flush=True)
            if process.returncode or not doc_blocks.fits(process.stdout, command.expected or "..."):
                print(f"{page.name} shows\n{command.expected}")
                return False
    return True


_LAP = """_lap() { echo "---- $((SECONDS - _before)) s: $1"; _before=$SECONDS; }; _before=0\n"""
_BEFORE = {"check": "source ~/venv/bin/activate\n"}

if __name__ == "__main__":
    sys.exit(main())
