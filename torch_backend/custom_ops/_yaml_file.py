"""YAML with line numbers, and nothing that YAML would take silently."""

import os
from pathlib import Path as File
from typing import Any, cast

from torch_backend.custom_ops._faults import Faults, Path


def read(file: str | os.PathLike[str]) -> tuple[Any, Faults]:
    """The data in a YAML file, and a collector that knows its lines and has the faults found so far: double keys.

    Raises ImportError without pyyaml, OSError if the file cannot be read, DeclarationError if it is not YAML.
    """
    try:
        import yaml
    except ModuleNotFoundError:
        raise ImportError(
            f"Reading {os.fspath(file)} needs pyyaml. Install it with: pip install 'torch_backend[yaml]'; or pass the "
            "declarations as Python dictionaries."
        ) from None
    faults = Faults(os.fspath(file))
    loader: Any = cast(Any, yaml.SafeLoader)(File(file).read_text(encoding="utf-8"))
    try:
        node = loader.get_single_node()
        data = None if node is None else _convert(loader, node, (), faults)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        faults.lines = {} if mark is None else {(): mark.line + 1}
        faults.add((), "", f"not YAML: {getattr(error, 'problem', None) or error}.")
        faults.check()
    finally:
        loader.dispose()
    return data, faults


def _convert(loader: Any, node: Any, path: Path, faults: Faults) -> Any:
    import yaml

    assert isinstance(faults.lines, dict)
    faults.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_convert(loader, child, (*path, index), faults) for index, child in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            faults.lines[(*path, key)] = key_node.start_mark.line + 1
            if key in mapping:
                faults.add((*path, key), "", f"the key '{key}' is there twice.")
            mapping[key] = _convert(loader, value_node, (*path, key), faults)
        return mapping
    return loader.construct_object(node, deep=True)
