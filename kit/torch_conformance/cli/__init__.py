"""The command line: ``torch-conformance``, and the subcommands that the kit brings to ``torch-backend``."""
