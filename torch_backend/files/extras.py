"""What the extras of this package bring, as modules to look for."""

import importlib.util

EXTRAS: dict[str, tuple[str, ...]] = {
    "yaml": ("yaml",),
    "check": ("torch_conformance", "yaml", "pytest", "xdist", "jinja2", "numpy", "expecttest", "hypothesis"),
}
"""The modules of each extra, ``torch_backend[check]``."""


def missing(extra: str) -> list[str]:
    """The modules of ``extra`` that are not installed."""
    return [name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None]
