"""Work in several threads at once."""

import threading
from collections.abc import Callable, Iterable
from functools import partial


def in_threads(functions: Iterable[Callable[[], object]]) -> None:
    """Call each function in a thread of its own, all at once, and raise the first thing that one of them raised."""
    todo = list(functions)
    errors: list[BaseException] = []
    start = threading.Barrier(len(todo))

    def run(function: Callable[[], object]) -> None:
        try:
            start.wait()
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in todo]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def in_numbered_threads(count: int, work: Callable[[int], object]) -> None:
    """Call ``work(number)`` for the numbers from 0 on, each in a thread of its own, as :func:`in_threads` does."""
    in_threads(partial(work, number) for number in range(count))
