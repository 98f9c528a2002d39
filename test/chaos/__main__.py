"""Long runs that look for what no single test finds: ``python test/chaos soak --minutes 30``, ``... faults``."""

import argparse
import os
import sys
import time


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python test/chaos", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    soak = commands.add_parser("soak", help="threads, devices and delays, without faults; every value is checked")
    soak.add_argument("--minutes", type=float, default=1.0, help="end after so long")
    soak.add_argument("--steps", type=int, default=sys.maxsize, help="... or after so many pieces of work")
    soak.add_argument("--devices", type=int, default=4)
    soak.add_argument("--delay-us", default="0-300", help="of each asynchronous operation; see backends/cpu/README.md")
    faults = commands.add_parser("faults", help="calls of the device fail at random")
    faults.add_argument("--count", type=int, default=2000, help="how many faults")
    faults.add_argument("--seed", type=int, default=0)
    faults.add_argument("--modules", action="store_true", help="of a device that compiles its kernels")
    faults.add_argument("--device", default="xcpu", help="another device with a library")
    faults.add_argument("--lose", action="store_true", help="every fault is the loss of one of 64 devices")
    for command in (soak, faults):
        command.add_argument("--threads", type=int, default=8)
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> bool:
    if arguments.command == "faults":
        os.environ["TORCH_BACKEND"] = "none"  # faults activates a library of its own
        import faults

        return faults.run(arguments)
    os.environ["TORCH_BACKEND"] = "xcpu"
    os.environ["TORCH_BACKEND_XCPU_ASYNC"] = "1"
    os.environ["TORCH_BACKEND_XCPU_DEVICES"] = str(arguments.devices)
    os.environ["TORCH_BACKEND_XCPU_DELAY_US"] = arguments.delay_us
    import soak  # imports torch, which activates the device

    limit = soak.Limit(time.monotonic() + 60 * arguments.minutes, arguments.steps)
    return soak.report(soak.soak("xcpu", limit, arguments.threads), "xcpu")


if __name__ == "__main__":
    sys.exit(0 if run(parse()) else 1)
