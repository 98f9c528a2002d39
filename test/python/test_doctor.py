"""``torch-backend doctor``: every mistake of a beginner ends in a message that names it and says what to do."""

import ast
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures import PLUGIN_SOURCES, BuildPlugin, VendorPackage, clean_environment

from torch_backend.__main__ import main
from torch_backend.diagnosis import child, settings
from torch_backend.files import extras, installed
from torch_backend.operators import rerouting

ROOT = Path(__file__).parents[2]

Doctor = Callable[..., tuple[int, str]]


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Run it in an environment that has only these settings: its exit code, and what it printed."""
    for variable in list(os.environ):
        if variable.startswith("TORCH_BACKEND") or variable == settings.AUTOLOAD_VARIABLE:
            monkeypatch.delenv(variable)

    def run(*arguments: str | Path, **environment: str | Path) -> tuple[int, str]:
        for variable, value in environment.items():
            monkeypatch.setenv(variable, str(value))
        capsys.readouterr()
        code = main(["doctor", *map(str, arguments)])
        return code, capsys.readouterr().out

    return run


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the process that imports torch, which takes seconds, where it is not what is tested."""
    run = child.run

    def run_without_torch(name: str, *arguments: Any) -> child.Outcome:
        return child.Outcome(is_done=True) if name == "torch" else run(name, *arguments)

    monkeypatch.setattr(child, "run", run_without_torch)


@pytest.fixture
def install(vendor_package: VendorPackage, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a package, here and in the processes that are started."""

    def put(*arguments: str, **options: str) -> None:
        site = vendor_package(*arguments, **options)
        monkeypatch.syspath_prepend(site)
        monkeypatch.setenv("PYTHONPATH", str(site))

    return put


def compile_c(target: Path, source: str, *arguments: str | Path, compiler: str = "cc") -> Path:
    file = target.with_suffix(".c" if compiler == "cc" else ".cpp")
    file.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", file, *arguments, "-o", target], check=True)
    return target


def problems(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("problem")]


# ---- nothing is wrong ----


def test_a_good_device(doctor: Doctor, build_plugin: BuildPlugin) -> None:
    code, said = doctor(build_plugin())
    assert code == 0, said
    assert re.search(r"^ok .*libtorch_backend_acme.so: 1 device, tensors work\.$", said, re.MULTILINE), said
    assert said.endswith("0 problems found.\n")


def test_all_that_can_be_found(doctor: Doctor, build_plugin: BuildPlugin) -> None:
    code, said = doctor(TORCH_BACKEND_PATH=build_plugin().parent)
    assert code == 0, said
    assert "ok       import torch: It activates 'acme'." in said
    assert all(f"{name} (reference device of torch_backend)" in said for name in installed.REFERENCE_DEVICES)


def test_a_device_on_request_without_a_driver(
    doctor: Doctor, install: Callable[..., None], build_plugin: BuildPlugin
) -> None:
    library = build_plugin('ENTRY_FAILS="install the driver"')
    install("acme", f"library = {str(library)!r}", group="torch_backend.devices.on_request")
    code, said = doctor()
    assert code == 0, said
    assert re.search(r"^note .*acme \(entry point.*install the driver", said, re.MULTILINE), said
    code, said = doctor("acme")
    assert code == 1, said
    assert problems(said), said


def test_json(doctor: Doctor, build_plugin: BuildPlugin) -> None:
    code, said = doctor(build_plugin("NO_CORE"), "--json")
    assert code == 1
    (finding,) = [finding for finding in json.loads(said) if finding["severity"] == "problem"]
    assert finding.keys() == {"severity", "subject", "text", "todo"}
    assert "has no core table" in finding["text"]


# ---- mistakes in a device library ----

MISTAKES = {
    ("UNSET_COPY",): ["required and not set: memory_copy", "what each slot must do"],
    ("NO_CORE",): ["has no core table (tb_plugin.core is NULL)"],
    ("NO_ENTRY",): ["does not export tb_plugin_entry. Mark that function TB_EXPORT"],
    ("ENTRY_SILENT",): ["its tb_plugin_entry returned NULL and gave no reason"],
    ('ENTRY_FAILS="no driver"',): ["refused to load: no driver"],
    ("ENTRY_CRASHES",): ["tb_plugin_entry: crashed with SIGSEGV", "a cast silences the compiler"],
    ("ABI_MAJOR=9",): ["speaks version 9.1 of the device ABI and this torch_backend speaks 1.1", "Rebuild the plugin"],
    ("PLUGIN_SIZE=0",): ["tb_plugin has struct_size 0", "Set struct_size = sizeof(tb_plugin)"],
    ("CORE_SIZE=16",): ["has struct_size 16, but the five required slots need"],
    ("COUNT_FAILS",): ["device_count failed with INTERNAL: the driver does not answer"],
    ("DEVICES=-1",): ["reports -1 devices; 0 to 64 are possible"],
    ("DEVICES=0",): ["device_count finds 0 devices", "in a container, that the device is passed on"],
    ("COUNT_BLOCKS",): ["device_count: did not return within 2 s", "a lock that is taken twice"],
    ("INITIALIZE_FAILS",): ["initialize failed with INTERNAL: the firmware is missing", "The driver does not start"],
    ("INITIALIZE_REFUSES",): [
        "/dev/acme0: Permission denied",
        "The driver refuses the user",
        "mode of its files in /dev",
    ],
    ("INITIALIZE_CRASHES",): ["initialize: crashed with SIGSEGV", "Run it under a debugger"],
    ("INITIALIZE_EXITS",): ["initialize: ended the process with exit code 3. It wrote: no license", "host->fail"],
    ("INITIALIZE_BLOCKS",): ["initialize: did not return within 2 s", "give more time with --timeout"],
    ("EXIT_CRASHES",): ["the end of the process: crashed with SIGSEGV"],
    ("PROPERTIES_FAIL",): ["device_properties failed with INTERNAL: device 0 has no identity"],
    ("BAD_ALIGNMENT",): ["allocation_alignment_bytes is 3; it must be a power of two and at least 64"],
    ("GARBAGE_PROPERTIES",): [
        "name fills all 64 bytes and has no NUL at its end",
        "capabilities has the bits 0x",
        "total_memory_bytes is 12370169555311111083",
        "warp_size is -1414812757; it must be at least 1",
    ],
    ("HALF_ASYNC",): ["stream_create, stream_destroy are set, but capabilities lacks TB_CAP_ASYNC"],
    ("SKIPS_COPIES",): ["bytes are wrong after they were copied to the device and back by memory_copy"],
    ("FREES_TWICE",): [
        "memory_free: crashed with SIGABRT.",
        "memory that is freed twice",
    ],
    ("WRONG_SIGNATURE",): [
        "memory_copy (TB_COPY_HOST_TO_DEVICE): crashed with SIGSEGV",
        "nothing detects it at run time",
    ],
    ('VENDOR="A\\xff"',): ["name is no UTF-8"],
}


@pytest.mark.parametrize("switches", MISTAKES, ids=lambda switches: re.sub(r"\W+", "_", switches[0]))
def test_a_mistake_is_named(switches: tuple[str, ...], doctor: Doctor, build_plugin: BuildPlugin) -> None:
    code, said = doctor(build_plugin(*switches), "--timeout", "2")
    assert code == 1, said
    for words in MISTAKES[switches]:
        assert words in said, said
    assert "tensors work" not in said


# ---- the page about mistakes ----

PAGE = ROOT / "docs" / "guides" / "troubleshooting.md"
LISTED = re.findall(r"^\|[^|]+\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("switches", MISTAKES, ids=lambda switches: re.sub(r"\W+", "_", switches[0]))
def test_a_mistake_is_on_the_page(switches: tuple[str, ...]) -> None:
    assert any(message in words or words in message for words in MISTAKES[switches] for message in LISTED)


@pytest.mark.parametrize("message", LISTED)
def test_a_message_of_the_page_is_tested(message: str) -> None:
    tests = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("test_doctor.py", "test_new.py")]
    strings = [node.value for test in tests for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Constant)]
    assert any(message in text for text in strings if isinstance(text, str))


def test_a_file_has_the_name_of_another_device(doctor: Doctor, build_plugin: BuildPlugin) -> None:
    code, said = doctor(build_plugin(name="acme", file="libtorch_backend_other.so"))
    assert code == 1
    assert "The file is called libtorch_backend_other.so and holds the device 'acme'." in said
    assert "Call it libtorch_backend_acme.so" in said


def test_a_name_that_torch_uses(doctor: Doctor, build_plugin: BuildPlugin) -> None:
    code, said = doctor(build_plugin(name="add"))
    assert code == 1
    assert "The device name 'add' cannot be used: torch.add exists already" in said


@pytest.mark.usefixtures("without_torch")
def test_a_newer_minor_version_is_noted(doctor: Doctor, build_plugin: BuildPlugin) -> None:
    code, said = doctor(build_plugin("NEWER_MINOR"))
    assert code == 0, said
    assert "It was built for device ABI 1.8; this torch_backend speaks 1.1. Both work together." in said


# ---- mistakes in the file ----


def test_there_is_no_file(doctor: Doctor, tmp_path: Path) -> None:
    code, said = doctor(tmp_path / "none.so")
    assert code == 1
    assert f"There is no file '{tmp_path / 'none.so'}'" in said


def test_a_link_leads_nowhere(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "lib.so").symlink_to(tmp_path / "gone.so")
    code, said = doctor(tmp_path / "lib.so")
    assert code == 1
    assert "is a link to" in said


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        (b"", "It is empty."),
        (b"version https://git-lfs", "It begins with b'version https://git-lfs'"),
        (b"\x7fELF", "ends within"),
    ],
    ids=["empty", "text", "short"],
)
def test_a_file_is_no_library(contents: bytes, words: str, doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(contents)
    code, said = doctor(tmp_path / "lib.so")
    assert code == 1
    assert words in said


def test_a_file_was_cut_off(doctor: Doctor, build_plugin: BuildPlugin, tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(build_plugin().read_bytes()[:6000])
    code, said = doctor(tmp_path / "lib.so")
    assert code == 1
    assert re.search(r"lib.so' was cut off: its headers describe \d+ bytes, and the file has 6000", said)
    assert "Copy, download or build it again" in said


def test_another_architecture(doctor: Doctor, build_plugin: BuildPlugin, tmp_path: Path) -> None:
    contents = bytearray(build_plugin().read_bytes())
    contents[18:20] = struct.pack("<H", 22)
    (tmp_path / "lib.so").write_bytes(contents)
    code, said = doctor(tmp_path / "lib.so")
    assert code == 1
    assert "is built for s390x with 64 bits; this Python runs on" in said
    assert "Build it for this machine" in said


def test_a_file_that_may_not_be_read(
    doctor: Doctor, build_plugin: BuildPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, access = build_plugin(), os.access
    monkeypatch.setattr(os, "access", lambda place, mode: place != str(path) and access(place, mode))
    code, said = doctor(path)
    assert code == 1
    assert f"chmod a+r {path}" in said


def test_a_dependency_is_missing(doctor: Doctor, tmp_path: Path) -> None:
    driver = compile_c(tmp_path / "libacme_driver.so", "int acme_open(void) { return 0; }")
    source = "int acme_open(void); void* tb_plugin_entry(void) { acme_open(); return 0; }"
    library = compile_c(tmp_path / "libtorch_backend_acme.so", source, f"-L{tmp_path}", "-lacme_driver")
    driver.unlink()
    code, said = doctor(library)
    assert code == 1
    assert "It needs libacme_driver.so, which the loader does not find." in said
    assert "LD_LIBRARY_PATH" in said


def test_a_symbol_is_undefined(doctor: Doctor, tmp_path: Path) -> None:
    source = "int acme_open(void); void* tb_plugin_entry(void) { return (void*)(long)acme_open(); }"
    code, said = doctor(compile_c(tmp_path / "libtorch_backend_acme.so", source))
    assert code == 1
    assert "Nothing that it is linked with has acme_open. Link" in said


def test_an_entry_with_the_name_of_cxx(doctor: Doctor, tmp_path: Path) -> None:
    source = "struct tb_host; void* tb_plugin_entry(const tb_host*) { return nullptr; }"
    code, said = doctor(compile_c(tmp_path / "libtorch_backend_acme.so", source, compiler="c++"))
    assert code == 1
    assert "has a C++ function tb_plugin_entry, whose name the compiler has changed" in said
    assert 'extern "C" TB_EXPORT' in said


def test_an_entry_with_a_misspelled_name(doctor: Doctor, tmp_path: Path) -> None:
    source = "void* tb_plugin_enrty(const void* host) { return (void*)host; }"
    code, said = doctor(compile_c(tmp_path / "libtorch_backend_acme.so", source))
    assert code == 1
    assert "has no tb_plugin_entry, but tb_plugin_enrty." in said
    assert len(problems(said)) == 1, said


def test_an_exception_leaves_the_library(doctor: Doctor, tmp_path: Path) -> None:
    source = 'extern "C" void* tb_plugin_entry(const void*) { throw "no card"; }'
    code, said = doctor(compile_c(tmp_path / "libtorch_backend_acme.so", source, compiler="c++"))
    assert code == 1
    assert "A C++ exception has left it" in said
    assert len(problems(said)) == 1, said


def test_a_class_with_a_misspelled_name(doctor: Doctor) -> None:
    code, said = doctor("python_devices:Plai")
    assert code == 1
    assert "Did you mean Plain" in said


# ---- places ----


@pytest.mark.usefixtures("without_torch")
def test_a_place_does_not_exist(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    code, said = doctor("fake", TORCH_BACKEND_PATH=tmp_path / "builds")
    assert code == 1
    assert f"It names '{tmp_path / 'builds'}', which does not exist." in said
    assert f"There is '{tmp_path / 'build'}'." in said
    assert len(problems(said)) == 1


@pytest.mark.usefixtures("without_torch")
def test_a_place_holds_no_library(doctor: Doctor, build_plugin: BuildPlugin, tmp_path: Path) -> None:
    code, said = doctor("fake", TORCH_BACKEND_PATH=tmp_path)
    assert code == 1
    assert "which holds no libtorch_backend_<name>.so." in said
    (tmp_path / "lib" / "deep").mkdir(parents=True)
    below = tmp_path / "lib" / "deep" / "libtorch_backend_acme.so"
    below.write_bytes(build_plugin().read_bytes())
    assert f"Directories below are not searched.\n         Name '{below}'." in doctor("fake")[1]
    (tmp_path / "libacme.so").write_bytes(b"")
    assert "It holds libacme.so." in doctor("fake")[1]


@pytest.mark.usefixtures("without_torch")
def test_a_place_that_may_not_be_listed(doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda place, mode: place != str(tmp_path) and access(place, mode))
    code, said = doctor("fake", TORCH_BACKEND_PATH=tmp_path)
    assert code == 1
    assert f"chmod a+rx {tmp_path}" in said


def test_there_is_no_such_device(doctor: Doctor) -> None:
    code, said = doctor("xpcu")
    assert code == 1
    assert "There is no such device: TORCH_BACKEND_PATH has no libtorch_backend_xpcu.so" in said
    assert "Did you mean xcpu?" in said


@pytest.mark.usefixtures("without_torch")
def test_a_library_with_a_name_of_its_own(doctor: Doctor, build_plugin: BuildPlugin) -> None:
    library = build_plugin(file="driver.so")
    code, said = doctor("acme", TORCH_BACKEND_PATH=library, TORCH_BACKEND="acme")
    assert code == 0, said
    assert "1 device, tensors work" in said
    code, said = doctor("nope", TORCH_BACKEND="nope")
    assert code == 1
    assert "There is no such device: TORCH_BACKEND_PATH has no" in said
    assert "tensors work" not in said


@pytest.mark.usefixtures("without_torch")
def test_a_place_is_a_link_to_nowhere(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "libtorch_backend_acme.so").symlink_to(tmp_path / "gone.so")
    code, said = doctor("fake", TORCH_BACKEND_PATH=tmp_path / "libtorch_backend_acme.so")
    assert code == 1
    assert f"a link to '{tmp_path / 'gone.so'}', which does not exist." in said


def test_two_devices_want_the_one_slot(doctor: Doctor, build_plugin: BuildPlugin) -> None:
    places = [build_plugin(name="acme"), build_plugin(name="zeta")]
    code, said = doctor(TORCH_BACKEND_PATH=":".join(map(str, places)))
    assert code == 1
    assert "import torch: 2 devices want PyTorch's one slot" in said
    assert "TORCH_BACKEND=acme, TORCH_BACKEND=zeta" in said


# ---- packages ----


def test_a_good_package(doctor: Doctor, build_plugin: BuildPlugin, install: Callable[..., None]) -> None:
    install("acme", f"library = {str(build_plugin())!r}\n")
    code, said = doctor("acme")
    assert code == 0, said
    assert "ok       acme (entry point 'acme' of acme_torch 1.2): " in said


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import acme_runtime\n", "importing acme_torch:library failed: No module named 'acme_runtime'."),
        ("def library(): raise OSError('no license')\n", "calling acme_torch:library failed: OSError: no license."),
        ("", "has no attribute 'library'"),
        ("library = 7\n", "acme_torch:library gives a int. It must give the path of a device library"),
        ("import os\nos._exit(9)\n", "importing acme_torch:library ended the process with exit code 9."),
        ("import time\ntime.sleep(99)\n", "importing acme_torch:library did not return within 6 s."),
        (
            "def library():\n    import time\n    time.sleep(99)\n",
            "calling acme_torch:library did not return within 1 s.",
        ),
        ("library = '/nowhere/libtorch_backend_acme.so'\n", "There is no file '/nowhere/libtorch_backend_acme.so'."),
    ],
    ids=["import", "call", "attribute", "type", "exit", "block-import", "block-call", "file"],
)
def test_a_broken_package(body: str, words: str, doctor: Doctor, install: Callable[..., None]) -> None:
    install("acme", body)
    code, said = doctor("acme", "--timeout", "1")
    assert code == 1, said
    assert words in said, said


@pytest.mark.usefixtures("without_torch")
def test_an_entry_point_with_another_name(
    doctor: Doctor, build_plugin: BuildPlugin, install: Callable[..., None]
) -> None:
    install("acne", f"library = {str(build_plugin())!r}\n")
    code, said = doctor("acne")
    assert code == 1
    assert "It gives the device 'acme'" in said
    assert "The name of the entry point must be the device's" in said


@pytest.mark.usefixtures("without_torch")
def test_an_entry_point_in_a_group_that_nobody_reads(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "acme-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[torch_backend.device]\nacme = acme:library\n")
    monkeypatch.syspath_prepend(tmp_path)
    code, said = doctor("fake")
    assert code == 1
    assert "It is in the group 'torch_backend.device', which nobody reads." in said
    assert "has to call the group 'torch_backend.devices'" in said


# ---- settings ----


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("TORCH_BACKEND", "none", "It is 'none', which asks for no device."),
        ("TORCH_BACKEND", "xcpu", "activates that and not 'fake'"),
        ("TORCH_BACKEND", "fkae", "there is no such device. Did you mean fake?"),
        ("TORCH_BACKEND", "/x/lib.so", "To use a file, name it in TORCH_BACKEND_PATH"),
        ("TORCH_DEVICE_BACKEND_AUTOLOAD", "0", "It is '0', so `import torch` looks for no device"),
        ("TORCH_DEVICE_BACKEND_AUTOLOAD", "true", "only 1 does"),
        ("TORCH_BACKEND_PATHS", "/x", "Did you mean TORCH_BACKEND_PATH?"),
        ("TORCH_BACKEND_NOPE_X", "1", "Nothing reads it"),
        ("TORCH_BACKND", "fake", "Did you mean TORCH_BACKEND?"),
        ("TORCH_BACKEDN_PATH", "/x", "Did you mean TORCH_BACKEND_PATH?"),
        ("TORCH_BACKEND_FAKE_DEVICE", "2", "Did you mean TORCH_BACKEND_FAKE_DEVICES?"),
        ("TORCH_BACKEND_FAKE_DEVICES", "many", 'fake.devices is "many"; expected a whole number from 1 to 64'),
    ],
)
@pytest.mark.usefixtures("without_torch")
def test_a_setting_keeps_a_device_away(variable: str, value: str, words: str, doctor: Doctor) -> None:
    code, said = doctor("fake", **{variable: value})
    assert code == 1, said
    assert words in said, said
    assert len(problems(said)) == 1, said


@pytest.mark.usefixtures("without_torch")
def test_a_device_without_options(doctor: Doctor, build_plugin: BuildPlugin) -> None:
    library = build_plugin('OPTION_KEYS="fast"', name="swift")
    code, said = doctor(library, TORCH_BACKEND_SWIFT_FAST="1")
    assert code == 0, said
    code, said = doctor(library, TORCH_BACKEND_SWIFT_SLOW="1")
    assert code == 1
    assert "The device 'swift' does not read it. It reads TORCH_BACKEND_SWIFT_FAST." in said


def test_own_settings_are_known() -> None:
    assert rerouting.SWITCH in settings.OWN_VARIABLES


# ---- the installation ----


@pytest.mark.usefixtures("without_torch")
def test_another_torch(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "torch_built_for", lambda: "2.1.0")
    code, said = doctor("fake")
    assert code == 1
    assert "was built for torch 2.1.0, but torch" in said
    assert "Rebuild it with" in said


@pytest.mark.usefixtures("without_torch")
def test_an_extra_is_not_installed(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "check", ("pytest", "no_such_module"))
    code, said = doctor("fake")
    assert code == 0, said
    assert "torch_backend[check]: no_such_module: not installed." in said
    assert "pip install 'torch_backend[check]'" in said


@pytest.mark.usefixtures("without_torch")
def test_a_library_of_torch_backend_is_missing(doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "host_library", lambda: tmp_path / "libtorch_backend-host.so")
    code, said = doctor("xcpu")
    assert code == 1
    assert f"'{tmp_path / 'libtorch_backend-host.so'}' is missing." in said


def test_switches_of_the_plugin_are_listed() -> None:
    """Every switch that a mistake is made with is one of the plugin's."""
    source = (PLUGIN_SOURCES / "plugin.c").read_text()
    assert not [name for (switch, *_) in MISTAKES if (name := switch.partition("=")[0]) not in source]


def test_files_in_the_working_folder_hide_no_package(tmp_path: Path) -> None:
    """Such as a checkout in which nothing is built, of the torch_backend that is installed."""
    for module in ("torch", "torch_backend"):
        (tmp_path / f"{module}.py").write_text("raise ImportError('not this one')\n")
    program = Path(sys.executable).with_name("torch-backend")
    done = subprocess.run(
        [program, "doctor", "fake"],
        cwd=tmp_path,
        env=clean_environment() | {"TORCH_BACKEND": "fake"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
