"""The page of ``torch-backend memory``: what a memory snapshot holds, as one HTML file that loads nothing."""

import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

CATEGORIES = ("parameter", "optimizer state", "input", "activation", "gradient", "unknown")
"""PyTorch's categories of memory, as far as the stack of an allocation tells them."""

_OPERATOR = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")


def page(snapshot: Mapping[str, Any], title: str) -> str:
    """The page of what ``torch.<name>.memory._dump_snapshot`` wrote.

    Raises ValueError if it is no such snapshot.
    """
    template = resources.files(__package__).joinpath("memory.html").read_text(encoding="utf-8")
    data = json.dumps({"title": title, "categories": CATEGORIES, **reduced(snapshot)}, separators=(",", ":"))
    return template.replace("/*DATA*/", data.replace("</", "<\\/"))


def reduced(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """What the page draws: by device the blocks with their lifetimes and the segments at the end; and the stacks."""
    stacks: dict[str, int] = {}
    try:
        devices = []
        for device, trace in enumerate(snapshot["device_traces"]):
            segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
            if trace or segments:
                devices.append({"index": device, **_device(trace, segments, stacks)})
    except (KeyError, TypeError) as error:
        raise ValueError(f"It is no memory snapshot: {error!r}.") from None
    return {"devices": devices, "stacks": list(stacks)}


def _device(
    trace: Sequence[Mapping[str, Any]], segments: Sequence[Mapping[str, Any]], stacks: dict[str, int]
) -> dict[str, Any]:
    """Blocks as [address, size, first event, event after the last, stream, category, stack]."""
    blocks: list[list[int]] = []
    live: dict[int, int] = {}
    end = len(trace)
    for event, entry in enumerate(trace):
        address = entry.get("addr", 0)
        if entry["action"] == "alloc":
            live[address] = len(blocks)
            blocks.append([address, entry["size"], event, end, entry["stream"], *_origin(entry["frames"], stacks)])
        elif entry["action"] == "free_completed":
            if address in live:
                blocks[live.pop(address)][3] = event
            else:
                blocks.append([address, entry["size"], 0, event, entry["stream"], *_origin((), stacks)])
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"].startswith("active") and block["address"] not in live:
                found = [*_origin(block.get("frames", ()), stacks)]
                blocks.append([block["address"], block["requested_size"], 0, end, segment["stream"], *found])
    started = next((entry["time_us"] for entry in trace if "time_us" in entry), 0)
    return {
        "blocks": blocks,
        "events": [entry.get("time_us", started) - started for entry in trace],
        "ooms": [event for event, entry in enumerate(trace) if entry["action"] == "oom"],
        "segments": [
            [
                segment["address"],
                segment["total_size"],
                segment["stream"],
                [[block["address"] - segment["address"], block["size"], block["state"]] for block in segment["blocks"]],
                bool(segment.get("is_expandable")),
            ]
            for segment in sorted(segments, key=lambda segment: -segment["total_size"])
        ],
    }


def _origin(frames: Sequence[Mapping[str, Any]], stacks: dict[str, int]) -> tuple[int, int]:
    """The category of an allocation, and the number of its stack: the operator, then Python's frames."""
    names = [frame["name"] for frame in frames]
    operator = next((match[1] for name in names if (match := _OPERATOR.search(name))), None)
    python = [frame for frame in frames if frame["filename"].endswith(".py") or frame["filename"].startswith("<")]
    lines = [f"{frame['filename']}:{frame['line']} {frame['name']}" for frame in python]
    text = "\n".join([*([f"aten::{operator}"] if operator else []), *lines]) or "allocated before the recording"
    files = [frame["filename"] for frame in python]
    if not frames:
        category = "unknown"
    elif any("/torch/optim/" in file for file in files):
        category = "optimizer state"
    elif any("autograd::Engine" in name for name in names) or any("/torch/autograd/" in file for file in files):
        category = "gradient"
    elif any(name in ("_apply", "reset_parameters", "load_state_dict", "register_parameter") for name in names):
        category = "parameter"
    elif any("/torch/nn/" in file for file in files) or "forward" in names:
        category = "activation"
    else:
        category = "input"
    return CATEGORIES.index(category), stacks.setdefault(text, len(stacks))
