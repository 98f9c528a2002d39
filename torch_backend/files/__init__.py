"""What lies on disk: this package's files, native part and extras, and device libraries; and the machine's load."""
