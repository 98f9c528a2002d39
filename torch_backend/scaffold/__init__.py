"""New plugin projects, for ``torch-backend new``: which names are possible, which files there are, and writing them.

It needs the extra ``torch_backend[check]``, for its templates.
"""

from torch_backend.scaffold.names import check_name
from torch_backend.scaffold.project import Kind, Language, Project

__all__ = ["Kind", "Language", "Project", "check_name"]
