"""Ways to show a :class:`~torch_conformance.results.Report`: one module per form."""
