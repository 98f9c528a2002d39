"""The table of operators by source, of ``torch-backend ops``."""

from collections import Counter
from collections.abc import Mapping

from rich.table import Table

from torch_backend.cli import _choice, _output, _patterns


def run(device: str | None, source: str | None, pattern: str | None, as_json: bool) -> None:
    """Print the overloads that ``pattern`` and ``source`` choose, and how many there are by source."""
    plugin = _choice.activate(device, "ops --device <{}>")
    import torch

    from torch_backend.operators import SOURCES, operator_sources

    known = (*SOURCES, "unavailable")
    if source is not None and source not in known:
        _output.fail(f"There is no source '{source}'. There are {', '.join(known)}.", code=2)
    sources = operator_sources()
    chosen = {op: sources[op] for op in _patterns.choose(sources, pattern) if source is None or sources[op] == source}
    counts: Counter[str] = Counter(dict.fromkeys(known if source is None else (source,), 0))
    counts.update(chosen.values())
    if as_json:
        _output.print_json(
            {"device": plugin.name, "torch": torch.__version__, "counts": dict(counts), "operators": chosen}
        )
        return
    console = _output.console()
    if chosen:
        console.print(_listing(chosen))
    console.print(f"\non {plugin.name}:", highlight=False)
    console.print(_output.count_table(counts))


def _listing(chosen: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", overflow="fold")
    table.add_column("source")
    for op, source in chosen.items():
        table.add_row(op, source)
    return table
