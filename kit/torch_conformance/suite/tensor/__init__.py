"""Level 2: tensors are created, viewed, copied, saved and exchanged as on the CPU."""
