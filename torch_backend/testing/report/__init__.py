"""Ways to show a :class:`~torch_backend.testing.results.Report`: one module per form."""
