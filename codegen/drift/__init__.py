"""What changes between two versions of torch, read from their wheels, and what of it concerns torch_backend."""
