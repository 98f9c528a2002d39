"""Where 32-bit indices end. Tensors of about 2^31 elements, with --large: minutes, and 22 GiB of memory.

Of that PyTorch takes 16 on the CPU for sums of bytes, which it converts first.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import DEVICE

from codegen import kernel_texts

_ROWS, _COLUMNS = 2**16, 2**15  # 2^31 elements
_BEYOND = 2**31 + 4099
_ALMOST = 7 * 2**28 + 5  # have 32-bit indices, which a step from the last element leaves
_MANY_ROWS = 2**24 + 5  # with a block of 256 items for each, there are more items than 32-bit indices

CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "pointwise": lambda x: x + 3,
    "compared": lambda x: x.masked_fill(x > 200, 0),
    "cast": lambda x: x.bool(),
    "transposed": lambda x: x[: _ROWS * _COLUMNS].view(_ROWS, _COLUMNS).t() + 1,
    "transposed copy": lambda x: x[: _ROWS * _COLUMNS].view(_ROWS, _COLUMNS).t().contiguous(),
    "sum": lambda x: x.sum(),
    "argmax": lambda x: x.argmax(),
    "sums of rows": lambda x: x[: _ROWS * _COLUMNS].view(_ROWS, _COLUMNS).sum(1),
    "sums of columns": lambda x: x[: _ROWS * _COLUMNS].view(_ROWS, _COLUMNS).sum(0),
    "scan": lambda x: x.cumsum(0, dtype=torch.uint8),
    "gathered": lambda x: x.index_select(0, torch.tensor([0, 5, _BEYOND - 1, 2**31], device=x.device)),
    "scattered": lambda x: x.index_fill(0, torch.tensor([_BEYOND - 1, 2**31], device=x.device), 7),
    "joined": lambda x: torch.cat([x[: 2**30], x[2**30 :]]),
    "reversed": lambda x: x.flip(0),
    "pointwise of fewer": lambda x: x[:_ALMOST] + 3,
    "in place of fewer": lambda x: torch._foreach_add([x[:5].clone(), x[5:_ALMOST].clone()], 3),
    "random numbers for fewer": lambda x: torch.zeros_like(x[:_ALMOST]).random_(3, 4),
    "softmax of many rows": lambda x: x[: 2 * _MANY_ROWS].view(-1, 2).float().softmax(1),
    "sums of many rows": lambda x: x[: 127 * _MANY_ROWS].view(-1, 127).sum(1),
    "compiled sums of many rows": lambda x: torch.compile(lambda a: a.sum(1))(x[: 127 * _MANY_ROWS].view(-1, 127)),
    "product of deep matrices": lambda x: x[:1].expand(1, _BEYOND) @ x[1:2].expand(_BEYOND, 1),
}


@pytest.fixture(scope="module")
def bytes_beyond(request: pytest.FixtureRequest) -> torch.Tensor:
    if not request.config.getoption("--large"):
        pytest.skip("takes minutes and 22 GiB of memory: --large")
    return torch.arange(_BEYOND, dtype=torch.int32).to(torch.uint8)


@pytest.mark.parametrize("name", CALLS)
def test_as_on_the_cpu(name: str, bytes_beyond: torch.Tensor) -> None:
    found, expected = CALLS[name](bytes_beyond.to(DEVICE)), CALLS[name](bytes_beyond)
    torch.testing.assert_close([x.cpu() for x in found] if isinstance(found, list) else found.cpu(), expected)


# ---- the loops of skeletons, without the memory ----

_LOOPS = """
#include <cstdio>
#include <cstdlib>
static u32 block, blocks, item, items;
#undef TB_BLOCK
#undef TB_BLOCKS
#undef TB_LOCAL_ITEM
#undef TB_BLOCK_ITEMS
#define TB_BLOCK block
#define TB_BLOCKS blocks
#define TB_LOCAL_ITEM item
#define TB_BLOCK_ITEMS items
int main(int, char** arguments) {
  blocks = (u32)atoll(arguments[1]), items = (u32)atoll(arguments[2]);
  block = (u32)atoll(arguments[3]), item = (u32)atoll(arguments[4]);
  const Index count = (Index)atoll(arguments[5]), inner = (Index)atoll(arguments[6]);
  i64 number = 0, first = -1, last = -1;
  LOOP { number += WORTH; first = first < 0 ? PLACE : first; last = PLACE + WORTH - 1; }
  printf("%lld %lld %lld", (long long)number, (long long)first, (long long)last);
}
"""
_MACROS = {
    "TB_FOR": ("TB_FOR(i, count)", "(i64)i", "1"),
    "TB_FOR_BLOCKS": ("TB_FOR_BLOCKS(i, count)", "(i64)i", "1"),
    "TB_FOR_ROWS": ("TB_FOR_ROWS(count, inner)", "((i64)row * inner + begin)", "(stop - begin)"),
}


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., range]:
    """What an item does of a range, each index once and in order; a signed overflow on the way ends the program."""
    programs: dict[tuple[str, str, bool], Path] = {}

    def run(macro: str, index: str, in_stretches: bool, *numbers: int) -> tuple[int, int, int]:
        key = macro, index, in_stretches
        if key not in programs:
            texts, folder = kernel_texts.texts(), tmp_path_factory.mktemp("loops")
            loop, place, worth = _MACROS[macro]
            defined = {"T": "float", "LOOP": loop, "PLACE": place, "WORTH": worth}
            head = [f"#define {name} {value}" for name, value in defined.items()]
            head += [f"typedef {kind}{index[1:]} {name};" for kind, name in (("i", "Index"), ("u", "UIndex"))]
            parts = [texts["cpp"], "" if in_stretches else "#undef TB_CHUNKED", *head, _LOOPS]
            (folder / "loops.cpp").write_text("\n".join([*parts[:2], texts["common"], *parts[2:]]))
            traps = ["-fsanitize=signed-integer-overflow", "-fsanitize-undefined-trap-on-error"]
            programs[key] = folder / "loops"
            subprocess.run(["c++", "-O1", "-w", *traps, folder / "loops.cpp", "-o", programs[key]], check=True)
        call = [programs[key], *map(str, numbers)]
        return tuple(map(int, subprocess.run(call, capture_output=True, text=True, check=True).stdout.split()))

    return run


def _ends(expected: range) -> tuple[int, int, int]:
    return len(expected), *((expected[0], expected[-1]) if expected else (-1, -1))


_MOST = {"i32": [1, 1000, _ALMOST, 2**31 - 2**20 - 1, 2**31 - 1], "i64": [2**31, 2**34 + 2**20 + 7]}
_COUNTS = [(index, count) for index, counts in _MOST.items() for count in counts]


@pytest.mark.parametrize(("index", "count"), _COUNTS)
@pytest.mark.parametrize("macro", ["TB_FOR", "TB_FOR_ROWS"])
def test_items_side_by_side_visit_their_places(visited: Any, macro: str, index: str, count: int) -> None:
    items = 256
    blocks = -(-count // (4 * items))  # as Launch.cpp has it
    for block, item in {(0, 0), (0, 255), (blocks // 2, 7), (max(blocks - 2, 0), 255), (blocks - 1, 255)}:
        expected = range(block * items + item, count, blocks * items)
        assert visited(macro, index, False, blocks, items, block, item, count, 1000) == _ends(expected)


@pytest.mark.parametrize(("index", "count"), [*_COUNTS[:-1], ("i32", 2**24 + 5)])
def test_blocks_visit_their_places(visited: Any, index: str, count: int) -> None:
    for blocks in {count, -(-count // 3)} if count < 2**31 else {2**31 - 1}:
        for block in {0, blocks // 2, blocks - 1}:
            found = visited("TB_FOR_BLOCKS", index, False, blocks, 256, block, 255, count, 1)
            assert found == _ends(range(block, count, blocks))


@pytest.mark.parametrize(("index", "count"), _COUNTS[:-1])
@pytest.mark.parametrize("macro", ["TB_FOR", "TB_FOR_ROWS"])
def test_stretches_follow_each_other(visited: Any, macro: str, index: str, count: int) -> None:
    blocks = 1000
    stretch = -(-count // blocks)
    for inner in {1000, count // 2 + 1}:
        for block in (0, 1, blocks // 2, blocks - 1):
            expected = range(min(block * stretch, count), min((block + 1) * stretch, count))
            assert visited(macro, index, True, blocks, 1, block, 0, count, inner) == _ends(expected)


def test_only_the_loops_know_how_work_is_divided() -> None:
    for name, text in kernel_texts.texts().items():
        assert name == "common" or "TB_ITEM" not in text, f"{name} divides work by itself"
