"""What a device costs against native CPU: one file per feature over a shared timer. ``python -m benchmarks --help``."""
