"""What a vendor's package says: named by an entry point, and imports neither torch nor triton."""

from torch_backend.triton import TritonBackend

BACKEND = TritonBackend(driver="interpreting_backend:Driver", compiler="interpreting_backend:Compiler")
