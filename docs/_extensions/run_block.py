"""The directive ``run``: a code block that test/python/test_docs.py runs, as the reader would.

::

    ```{run} console
    $ torch-backend --version
    0.2.0
    ```

It looks like an ordinary code block. :mod:`doc_blocks` says what it may hold and how it is run.
"""

from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.directives.code import CodeBlock

LEXERS = {"output": "text"}


class RunBlock(CodeBlock):
    """A code block with the options that the test understands; only ``file`` shows, as a caption."""

    option_spec: ClassVar[dict[str, Any]] = {
        **CodeBlock.option_spec,
        "file": directives.unchanged_required,
        "continue": directives.flag,
        "edit": directives.flag,
        "sample": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """Render as ``code-block`` does."""
        language = self.arguments[0]
        self.arguments[0] = LEXERS.get(language, language)
        if "file" in self.options:
            self.options["caption"] = self.options["file"]
        return super().run()


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("run", RunBlock)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
