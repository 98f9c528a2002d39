"""The directive ``torch-name SECTION...``: what ``torch.NAME`` has of some files of ``torch_backend.device_module``.

All is documented under the name that users type, with a table of all names first.
"""

import re
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from torch_backend import device_module

NAME = "torch.NAME"
_OF_MODULE = {  # what users of torch.cuda look for there
    "memory": ("_record_memory_history", "_snapshot", "_dump_snapshot", "_attach_out_of_memory_observer"),
    "nvtx": ("range", "range_start", "range_end"),
    "profiler": ("profile", "start", "stop"),
}


def names_of(section: str) -> list[str]:
    """The public names of one file, functions and classes."""
    module = f"{device_module.__spec__.name}.{section}"
    found = [name for name in _public() if getattr(device_module, name).__module__ == module]
    return [*sorted(found), *(f"{section}.{name}" for name in _OF_MODULE.get(section, ()))]


def undocumented() -> set[str]:
    """Functions and classes that no section of the page has."""
    page = (Path(__file__).parents[1] / "reference" / "torch_name.md").read_text(encoding="utf-8")
    lines = re.findall(r"^```\{torch-name\} (.+)$", page, re.M)
    return set(_public()) - {name for line in lines for section in line.split() for name in names_of(section)}


def _public() -> list[str]:
    """Functions and classes, without those that are PyTorch's own."""
    values = {name: getattr(device_module, name) for name in device_module.__all__}
    return [
        name
        for name, value in values.items()
        if isinstance(value, (FunctionType, type)) and value.__module__.startswith("torch_backend.")
    ]


class TorchName(SphinxDirective):
    """``torch-name SECTION...``, files of the package."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """A summary, then every name."""
        names = [name for section in self.arguments[0].split() for name in names_of(section)]
        lines = [f".. currentmodule:: {NAME}", "", ".. autosummary::", "   :nosignatures:", ""]
        lines += [f"   {name}" for name in names]
        for name in names:
            place = device_module
            for part in name.split("."):
                place = getattr(place, part)
            is_class = isinstance(place, type)
            lines += ["", f".. auto{'class' if is_class else 'function'}:: {NAME}.{name}"]
            lines += ["   :members:"] if is_class else []
        lines = ["```{eval-rst}", *lines, "```"]  # the page around it is Markdown
        return self.parse_text_to_nodes(StringList(lines, source=self.get_source_info()[0]))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive, and the name under which autodoc imports the module."""
    sys.modules[NAME] = device_module
    for section in (
        *("memory", "amp", "devices", "graphs", "random", "streams", "sync_debug"),
        *("nvtx", "profiler", "telemetry", "typed_tensors"),
    ):
        sys.modules[f"{NAME}.{section}"] = getattr(device_module, section)
    app.add_directive("torch-name", TorchName)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
