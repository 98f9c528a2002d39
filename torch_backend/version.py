"""The version of torch_backend. The build reads it from here."""

__version__ = "0.2.0"

TORCH = ">=2.11,<2.16"
"""The versions of torch that this one can be built for; a wheel is for one of them. Device libraries work with all."""
