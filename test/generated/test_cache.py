"""Compiled modules are kept on disk: found again, replaced when damaged, shared by processes."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, torch
x = torch.arange(12.0).view(3, 4).to(os.environ["TORCH_BACKEND"])
assert (x + x.mul(2)).cpu().equal(torch.arange(12.0).view(3, 4) * 3)
assert x.t().contiguous().cpu().equal(torch.arange(12.0).view(3, 4).t())
"""


# A compiler that waits until there are two of it.
COMPILER = """#!/bin/sh
touch {folder}/used {folder}/compiler.$$
for i in $(seq 80); do
  if [ -e {folder}/together ] || [ $(ls {folder}/compiler.* | wc -l) -gt 1 ]; then touch {folder}/together; break; fi
  sleep 0.1
done
rm {folder}/compiler.$$
exec {compiler} "$@"
"""
SORT = """
import os, torch
x = torch.randn(40, 64)
assert x.to(os.environ["TORCH_BACKEND"]).sort().values.cpu().equal(x.sort().values)
"""


def start(folder: Path, **variables: str) -> "subprocess.Popen[str]":
    environment = os.environ | {"TORCH_BACKEND_CACHE": str(folder)} | variables
    return subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stderr=subprocess.PIPE, text=True)


def run(folder: Path, **variables: str) -> None:
    process = start(folder, **variables)
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def images(folder: Path) -> dict[str, int]:
    """The number of each file, which changes when it is written again."""
    return {file.name: file.stat().st_ino for file in folder.glob("*.image")}


def test_a_second_process_compiles_nothing(tmp_path):
    run(tmp_path / "cache")
    kept = images(tmp_path / "cache")
    assert len(kept) == 3  # mul, add, copy
    assert (tmp_path / "cache").stat().st_mode & 0o77 == 0
    run(tmp_path / "cache")
    assert images(tmp_path / "cache") == kept


@pytest.mark.parametrize("damage", [b"", b"torch_backend image 1\n", b"x" * 5000])
def test_damaged_images_are_compiled_again(tmp_path, damage):
    run(tmp_path)
    kept = images(tmp_path)
    for name in kept:
        contents = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(damage + contents[len(damage) :] if len(damage) == 5000 else damage)
    run(tmp_path)
    again = images(tmp_path)
    assert again.keys() == kept.keys()
    assert all(again[name] != kept[name] for name in kept)


@pytest.mark.parametrize("wanted", ["1", "0"])
def test_a_terminal_shows_the_compilations_while_they_run(tmp_path, wanted):
    ours, theirs = pty.openpty()
    environment = os.environ | {"TORCH_BACKEND_CACHE": str(tmp_path), "TORCH_BACKEND_PROGRESS": wanted}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, stderr=theirs, check=True)
    os.close(theirs)
    os.set_blocking(ours, False)
    try:
        shown = os.read(ours, 10000).decode()
    except OSError:  # nothing was ever written
        shown = ""
    os.close(ours)
    lines = [
        f"torch_backend: {os.environ['TORCH_BACKEND']} compiles the kernels of this program, {n}" for n in (0, 1, 2)
    ]
    assert [shown.count(line) for line in lines] == [int(wanted)] * 3
    assert shown.endswith("\r\x1b[K") == (wanted == "1")


def test_processes_share_the_folder(tmp_path):
    processes = [start(tmp_path) for _ in range(4)]
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    assert len(images(tmp_path)) == 3
    assert not list(tmp_path.glob(".new-*"))


def test_the_cache_can_be_off_or_out_of_reach(tmp_path):
    run(tmp_path / "off", TORCH_BACKEND_CACHE_MIB="0")
    assert not (tmp_path / "off").exists()
    (tmp_path / "file").write_text("")
    run(tmp_path / "file" / "below")


def test_old_images_make_room(tmp_path):
    for number in range(3):
        file = tmp_path / f"{number}.image"
        file.write_bytes(bytes(400_000))
        os.utime(file, (1_000_000 + number,) * 2)
    run(tmp_path, TORCH_BACKEND_CACHE_MIB="1")
    left = images(tmp_path)
    assert "0.image" not in left
    assert {"1.image", "2.image"} <= left.keys()
    assert len(left) == 5


def test_the_texts_of_an_operator_are_compiled_side_by_side(tmp_path):
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(folder=tmp_path, compiler=os.environ.get("CXX", "c++")))
    compiler.chmod(0o700)
    environment = os.environ | {"TORCH_BACKEND_CACHE": str(tmp_path / "cache"), "CXX": str(compiler)}
    subprocess.run([sys.executable, "-c", SORT], env=environment, check=True)
    if not (tmp_path / "used").exists():
        pytest.skip("the device's compiler is no program that CXX names")
    assert (tmp_path / "together").exists()
