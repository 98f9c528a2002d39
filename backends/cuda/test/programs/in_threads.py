"""With two devices, a stream a thread."""

import sys
import threading

import torch
from _functions import case
from _numbers import close

function, inputs = case(sys.argv[1])
wanted, done = function(*(x.double() for x in inputs)).detach(), []


def work(index: int) -> None:
    device = f"xcuda:{index % 2}"
    stream = torch.xcuda.Stream(device)
    with torch.xcuda.stream(stream):
        for _ in range(5):
            y = function(*(x.detach().to(device) for x in inputs))
    stream.synchronize()
    close(y.detach(), wanted)
    done.append(index)


for _ in range(2):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
assert sorted(done) == [0, 0, 1, 1, 2, 2, 3, 3]
