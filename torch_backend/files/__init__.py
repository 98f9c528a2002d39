"""What lies on disk: this package's files, native part and extras, and device libraries before they are opened."""
