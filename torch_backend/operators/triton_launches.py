"""Which Triton kernels a program launches, by name: compiled or interpreted."""

import functools
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

_LAUNCH = {"triton.runtime.jit": "JITFunction", "triton.runtime.interpreter": "InterpretedFunction"}


@contextmanager
def count_launches() -> Iterator[Counter[str]]:
    """Count what is launched inside a with statement, in all threads; nothing if triton was not imported before.

    What an autotuner tries counts too. Kernels of compiled graphs do not: Inductor launches them past these functions.
    """
    launches: Counter[str] = Counter()
    with ExitStack() as changed:
        for module, name in _LAUNCH.items():
            owner: Any = getattr(sys.modules.get(module), name, None)
            if owner is not None:
                changed.enter_context(mock.patch.object(owner, "run", _counting(owner.run, launches)))
        yield launches


def _counting(run: Any, launches: "Counter[str]") -> Any:
    @functools.wraps(run)
    def counted(self: Any, *args: Any, warmup: bool, **kwargs: Any) -> Any:
        if not warmup:
            launches[self.fn.__name__] += 1
        return run(self, *args, warmup=warmup, **kwargs)

    return counted
