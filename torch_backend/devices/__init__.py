"""From what is installed to the active device: finding, choosing, loading, registering, activating."""
