"""The tests of the conformance kit, one folder per level."""
