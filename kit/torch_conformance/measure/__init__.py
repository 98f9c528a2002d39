"""What a device costs: numbers with their spread, reported and not judged."""
