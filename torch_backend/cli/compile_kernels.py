"""``torch-backend compile-kernels``: images of the kernels that a program needs, made before it runs."""

import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import click

from torch_backend.cli import _choice, _output, _script

# What compilers know a language by.
_SUFFIXES = {"c++": ".cpp", "opencl-c": ".cl", "cuda-c": ".cu"}
_PLACES = ("{source}", "{image}")


def _compiler(command: str, suffix: str) -> Callable[[str], bytes]:
    """What makes an image of a kernel's text by ``command``. Raises RuntimeError with what the command says."""
    words = shlex.split(command)

    def compile(text: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            source, image = Path(folder) / f"kernel{suffix}", Path(folder) / "kernel.image"
            source.write_text(text, encoding="utf-8")
            places = dict(zip(_PLACES, (str(source), str(image)), strict=True))
            line = [_replaced(word, places) for word in words]
            try:
                done = subprocess.run(line, capture_output=True, text=True, errors="replace")
            except OSError as error:
                raise RuntimeError(f"The compiler {words[0]} cannot be started: {error}") from error
            if done.returncode != 0 or not image.is_file():
                said = (done.stderr or done.stdout).strip()
                raise RuntimeError(
                    f"{shlex.join(line)} has ended with {done.returncode} and "
                    f"{'an' if image.is_file() else 'without an'} image. It says: {said[:4000] or 'nothing'}"
                )
            return image.read_bytes()

    return compile


def _replaced(word: str, places: dict[str, str]) -> str:
    for place, path in places.items():
        word = word.replace(place, path)
    return word


@click.command("compile-kernels", short_help="Compile the kernels that a program needs, before it runs.")
@_choice.device_option
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the images, which are added to those that it has.",
)
@click.option(
    "--compiler",
    metavar="COMMAND",
    help="What makes an image of a text, with {source} and {image} for the files: 'clang --target=acme -c {source} "
    "-o {image}'. By default the device's own module_load, which must have module_image.",
)
@click.option(
    "--operators",
    metavar="FILE",
    type=click.File(encoding="utf-8"),
    help="Compile what these operators need for PyTorch's own samples of them, forward and backward: one a line, as "
    "`torch-backend ops --needed-for` prints them; - for the standard input.",
)
@click.option("--dtypes", metavar="LIST", help="Of the samples for --operators; by default float32.")
@click.argument("script", required=False)
@click.argument("arguments", nargs=-1)
@_output.json_option
def compile_kernels(
    device: str | None,
    output: Path,
    compiler: str | None,
    operators: IO[str] | None,
    dtypes: str | None,
    script: str | None,
    arguments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run SCRIPT, or OPERATORS, on the device, and keep the image of each kernel that comes up in the folder OUTPUT.

    A device finds them in the folder images beside its library, or in that of TORCH_BACKEND_IMAGES, and its driver need
    not compile. An image is for one kernel text, device (its arch) and version of the device's library; other dtypes,
    layouts and versions of torch_backend are other texts. Where the driver does not compile, what is missing runs on
    the CPU. ARGUMENTS are the script's; write -- before options among them.

    Samples are small: large tensors, which are moved in vectors, may need other texts, which a script comes to.

    JSON: {"device": name, "images": number, "compiled": number, "seconds": time, "fallbacks": {overload: calls},
    "without_samples": {overload: [dtype, ...]}}; images are all in OUTPUT, and compiled those that were missing there.
    """
    if script is None and operators is None:
        _output.fail("There is nothing to run: give a SCRIPT, --operators, or both.", code=2)
    if dtypes is not None and operators is None:
        _output.fail("--dtypes is of the samples for --operators, which is not given.", code=2)
    if script is not None:
        _script.check(script)
    if compiler is not None and any(place not in compiler for place in _PLACES):
        _output.fail(
            f"--compiler '{compiler}' names no {' and '.join(p for p in _PLACES if p not in compiler)}.", code=2
        )
    plugin = _choice.activate(device, f"compile-kernels --device <{{}}> -o {output} {script or '--operators FILE'}")
    from torch_backend import _C, fallback
    from torch_backend.cli import _samples

    language = _C.module_format()
    if language is None:
        _output.fail(
            f"{plugin.name} takes no modules in a language that kernels are written in: there is nothing to compile.",
            code=1,
        )
    chosen = None if operators is None else _samples.read(operators, dtypes or "float32")
    output.mkdir(parents=True, exist_ok=True)
    _C.compile_ahead(str(output), None if compiler is None else _compiler(compiler, _SUFFIXES[language]))
    started = time.monotonic()
    if script is not None:
        _script.run(script, arguments, "the kernels after that are not compiled.")
    outcome = _samples.Outcome() if chosen is None else _samples.run(*chosen, plugin.name)
    seconds = time.monotonic() - started
    compiled, images = _C.num_ahead_images(), len(list(output.glob("*.image")))
    fallbacks = {entry.op: entry.calls for entry in fallback.report()}
    if as_json:
        _output.print_json(
            {
                "device": plugin.name,
                "images": images,
                "compiled": compiled,
                "seconds": round(seconds, 1),
                "fallbacks": fallbacks,
                "without_samples": outcome.without,
            }
        )
    else:
        console = _output.console()
        console.print(
            f"{compiled} kernels compiled for {plugin.name} in {seconds:.1f} s; {images} in {output}.", highlight=False
        )
        if fallbacks:
            console.print(f"No kernel, and so on the CPU: {', '.join(fallbacks)}.", highlight=False)
        if outcome.without:
            listed = (f"{op} ({', '.join(missing)})" for op, missing in outcome.without.items())
            console.print(f"No sample, and so not compiled: {', '.join(listed)}.", highlight=False)
    if outcome.failures:
        first, *others = outcome.failures
        _output.fail(f"{first}{f' And {len(others)} more samples have failed.' if others else ''}", code=1)
