"""How the documentation is built: ``make docs``."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

from torch_backend import __version__  # noqa: E402

project = "torch_backend"
author = "The torch_backend developers"
project_copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "run_block",
    "command_help",
    "cpp_header_page",
    "header_page",
    "promise_table",
    "repository_links",
    "torch_name",
]
autosummary_generate = False
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Defaults as the source has them: os.environ is not to be spelled out.
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# What is copied of a console block are its commands, without prompts and without what they print.
copybutton_prompt_text = r"\$ |> "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = f"torch_backend {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_js_files = [("versions.js", {"defer": "defer"})]

# Links to other sites are not checked: a build needs no network.
linkcheck_ignore = [r"https?://"]
