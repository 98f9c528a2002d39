"""Code generation against the installed torch: what it writes is built, never committed."""
