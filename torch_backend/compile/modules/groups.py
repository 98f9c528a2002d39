"""How the items of a block reduce together."""

from dataclasses import dataclass, replace

from torch_backend.compile.modules.loop_ir import Block, Declaration, Node, Statement
from torch_backend.compile.modules.passes import Reduced

_TOGETHER = 8
"""Elements that are worth the items of a block reducing them together."""
_WARP = 32
"""Items that exchange values without shared memory, where any do."""
_AT_HOME = 2048
"""Items that a multiprocessor has at once, or nearly."""
_AHEAD = 8
"""Elements that an item reads before it computes with them, ..."""
_LOADS_AHEAD = 32
"""... if that is not more loads."""


@dataclass(frozen=True)
class Group:
    """How the items of a block share elements that are kept: ``across`` of them at once, each with ``along`` items."""

    across: int
    along: int
    is_of_columns: bool
    """Neighbours are kept; else they are reduced."""

    @classmethod
    def of(cls, kept: int, reduced: int, has_columns: bool, items: int, processors: int) -> "Group | None":
        """For blocks of so many items. None: items are better off alone."""
        if reduced < _TOGETHER:
            return None
        if not has_columns:
            along = min(8 if reduced <= 64 else _WARP if reduced <= 512 else 128 if reduced <= 2048 else items, items)
            return cls(items // along, along, is_of_columns=False)
        if kept >= processors * _AT_HOME:
            return None
        # Memory is read in 32 bytes: narrower than 8 columns is no use.
        across = min(next((many for many in (32, 16) if kept >= many * processors), 8), items)
        return cls(across, items // across, is_of_columns=True)

    @property
    def _exchanging(self) -> int:
        """Items that reduce together and exchange values without shared memory, if the device can."""
        return 1 if self.is_of_columns else min(self.along, _WARP)

    @property
    def once(self) -> list[Node]:
        """Where an item is in its block."""
        own, lane = ("%", "/") if self.is_of_columns else ("/", "%")
        by = self.across if self.is_of_columns else self.along
        item = "const Index item = (Index)TB_LOCAL_ITEM;"
        return [item, f"const Index own = item {own} {by}, lane = item {lane} {by};"]

    @property
    def head(self) -> str:
        """Of the loop over what blocks do."""
        return f"TB_FOR_BLOCKS(several, (xnumel - 1) / {self.across} + 1)"

    @property
    def here(self) -> list[Node]:
        """What an item does there. Those for which nothing is left have the last element again, and no part of it."""
        return [
            f"const Index left = xnumel - several * {self.across};",
            "const Index place = own < left ? own : left - 1;",
            f"const Index xindex = several * {self.across} + place;",
            f"const Index steps = own < left && lane < r0_numel ? (r0_numel - 1 - lane) / {self.along} + 1 : 0;",
        ]

    def each(self, part: Reduced, reduced: int, places: list[Node]) -> Block:
        """An item's part of about ``reduced`` elements: those ``along`` apart, of which several are read at once."""
        loads, rest = part.loads()
        steps = -(-reduced // self.along)
        most = max(min(_AHEAD, _LOADS_AHEAD // max(len(loads), 1)), 1)
        ahead = -(-steps // -(-steps // most)) if steps > 0 else 1

        def at(step: str) -> list[Node]:
            return [f"const Index r0_index = lane + {step} * {self.along};", *places]

        single = Block("for (; step < steps; ++step)", [*at("step"), *part.lines, *part.steps()])
        if ahead == 1:
            return Block("", ["Index step = 0;", single])
        head = f"for (int ahead = 0; ahead < {ahead}; ++ahead)"
        one_by_one = [each for each in part.reductions if not each.at_once(head, ahead, {})]
        at_once = [each for each in part.reductions if each not in one_by_one]
        wanted = {str(value) for each in at_once for value in each.values}
        kept = [line for line in part.lines if isinstance(line, Declaration) and (line in loads or line.sets in wanted)]
        subscripts = {line.sets: f"{line.sets}[ahead]" for line in kept}
        rest = [line.assignment() if isinstance(line, Declaration) and line in kept else line for line in rest]
        batch: list[Node] = [f"{line.kind} {line.sets}[{ahead}];" for line in kept]
        for lines in ([line.assignment() for line in loads], [*rest, *(each.step() for each in one_by_one)]):
            if lines:
                batch += ["TB_UNROLL", Block(head, [*at("(step + ahead)"), *lines], subscripts)]
        for reduction in at_once:
            batch += reduction.at_once(head, ahead, subscripts)
        return Block("", ["Index step = 0;", Block(f"for (; steps - step >= {ahead}; step += {ahead})", batch), single])

    @staticmethod
    def leaving(line: Statement) -> list[Node]:
        """``line``, by which an item may leave an element that is kept: with all its block, as they meet later on."""
        value = replace(line.value, form=line.value.form.replace("continue;", "gone[0] = 1;"))
        first: list[Node] = ["TB_BARRIER();", "if (item == 0) gone[0] = 0;", "TB_BARRIER();"]
        return [*first, replace(line, value=value), "TB_BARRIER();", "if (gone[0]) continue;"]

    @staticmethod
    def shared(part: Reduced) -> list[Node]:
        """What a block's items have in common."""
        return [f"TB_LOCAL_ARRAY({kind}, {name}_shared, GROUP);" for kind, name, _ in part.fields]

    def merged(self, part: Reduced) -> list[Node]:
        """Adds up what the items have. The order is the same for all, so that all have the same, every time."""
        names = [name for _, name, _ in part.fields]
        lines: list[Node] = []
        share: list[Node] = [f"{name}_shared[item] = {name};" for name in names]
        if self._exchanging > 1:
            others: list[Node] = []
            for kind, name, _ in part.fields:
                others += [f"{kind} {name}_other;", f"TB_FROM_OTHER({name}_other, {name}, mask, {name}_shared)"]
            head = f"for (int mask = 1; mask < {self._exchanging}; mask *= 2)"
            lines += ["TB_UNROLL", Block(head, [*others, *part.merges("", "_other")])]
            share = [f"{name}_shared[item / {self._exchanging}] = {name};" for name in names]
            share = [Block(f"if (lane % {self._exchanging} == 0)", share)]
        count = self.along // self._exchanging
        first, step = ("place", self.across) if self.is_of_columns else (f"place * {count}", 1)
        lines += ["TB_BARRIER();", *share, "TB_BARRIER();", *(f"{name} = {name}_shared[{first}];" for name in names)]
        if count > 1:
            merge = part.merges("", f"_shared[{first} + other * {step}]")
            lines += ["TB_UNROLL", Block(f"for (int other = 1; other < {count}; ++other)", merge)]
        return lines
