"""Tests of the bare device library, through ctypes and without torch."""
