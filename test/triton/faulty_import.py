"""The module of a driver whose SDK is missing."""

raise RuntimeError("the SDK is not installed")
