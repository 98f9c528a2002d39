"""Prints what CUPTI has recorded: the operator, the name of a copy, its bytes."""

import torch
from _trace import measured, of, trace

x, y = torch.randn(40, 30).pin_memory(), torch.randn(30, 20)


def work() -> torch.Tensor:
    with torch.xcuda.stream(torch.xcuda.Stream()):
        a = x.to("xcuda", non_blocking=True)
        b = (a @ y.to("xcuda")).exp()
        b.to("xcuda:1") * 2, torch.zeros(1000, device="xcuda:1")
    return b.cpu()


work()
events = trace(work)
operators = {event["args"].get("External id"): event["name"] for event in of(events, "cpu_op")}
for event in sorted(of(events), key=lambda event: event["ts"]):
    name, arguments = event["name"], event["args"]
    print(operators[arguments["External id"]], name if "(" in name else "", arguments.get("bytes", ""))
assert measured(events) == ["device trace"]
