"""Calls of the device fail at random while threads train and copy: what is raised, and what is left behind."""

import argparse
import collections
import ctypes
import faulthandler
import gc
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from pathlib import Path
from random import Random
from typing import Any

import torch
from resident import growth_per_step, resident_bytes
from steps import STEPS, Place, compile_layers, take

import torch_backend
from torch_backend.files import installed, patience

PLUGIN = Path(__file__).parents[1] / "plugins" / "chaos.c"
MAX_DEVICES = 64
# What torch_backend's documentation says that a failing device raises.
DOCUMENTED = (torch.AcceleratorError, torch.OutOfMemoryError, NotImplementedError)


def _library(device: str) -> str:
    """Where its library is: not opened here, which would read the options."""
    find = "from torch_backend.devices import discovery, selection\n"
    find += f"print(selection.find({device!r}, discovery.discover()).load().path)"
    return subprocess.run([sys.executable, "-c", find], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


class Device:
    """A device behind test/plugins/chaos.c, active, and what tells it how to fail."""

    def __init__(self, name: str, options: dict[str, str]) -> None:
        path = Path(tempfile.mkdtemp()) / f"libtorch_backend_{name}.so"
        include, over = installed.include_dir(), _library(name)
        lists = [sys.executable, "-m", "codegen.slots", include / "torch_backend" / "device.h", path.parent / "slots.h"]
        subprocess.run(lists, cwd=PLUGIN.parents[2], check=True)
        includes = (f"-I{include}", f"-I{path.parent}")
        command = ["cc", "-std=c11", "-O1", "-shared", "-fPIC", *includes, f'-DLIBRARY="{over}"', str(PLUGIN)]
        subprocess.run([*command, "-ldl", "-lpthread", "-o", str(path)], check=True)
        torch_backend.activate(torch_backend.load(path, options=options))
        library = ctypes.CDLL(str(path))
        slots, statuses = (ctypes.c_int.in_dll(library, f"chaos_num_{what}").value for what in ("slots", "statuses"))
        self.slots = [slot.decode() for slot in (ctypes.c_char_p * slots).in_dll(library, "chaos_slots")]
        self.statuses = list((ctypes.c_int32 * statuses).in_dll(library, "chaos_statuses"))
        self.rates = (ctypes.c_uint * slots).in_dll(library, "chaos_rates")
        self.tally = (ctypes.c_uint64 * statuses * slots).in_dll(library, "chaos_counts")
        self.lost = (ctypes.c_int * MAX_DEVICES).in_dll(library, "chaos_lost")
        self.losing = ctypes.c_int.in_dll(library, "chaos_losing")
        self.name = name
        self.module: Any = getattr(torch, name)

    def set_rates(self, rates: dict[str, int]) -> None:
        """Faults per million calls, of the slots that are named; the others do not fail."""
        self.rates[:] = [rates.get(slot, 0) for slot in self.slots]

    def lose_devices(self, on: bool) -> None:
        self.losing.value = on

    def is_lost(self, device: int) -> bool:
        return bool(self.lost[device])

    def counts(self) -> collections.Counter[tuple[str, int]]:
        return collections.Counter(
            {
                (slot, status): count
                for slot, row in zip(self.slots, self.tally, strict=True)
                for status, count in zip(self.statuses, row, strict=True)
            }
        )

    def usable(self) -> list[int]:
        return [i for i in range(self.module.device_count()) if not self.is_lost(i)]


STALLED = 120.0
"""Seconds without a step, on an idle machine, after which threads must be waiting for each other."""


class Run:
    """Threads that work while rates change; see `problems` for what must not happen."""

    def __init__(self, device: Device, num_threads: int) -> None:
        self.device = device
        self.num_threads = num_threads
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.raised: collections.Counter[str] = collections.Counter()
        self.problems: list[str] = []
        self.steps = 0
        self.resident: list[tuple[int, int]] = []

    def work(self, seed: int) -> None:
        place = Place(self.device.name, seed)
        while not self.stop.is_set():
            step = place.random.choice(STEPS)
            try:
                take(place, step)
                outcome = "nothing"
            except DOCUMENTED as error:
                outcome = type(error).__name__
            except Exception as error:
                outcome = type(error).__name__
                last = traceback.extract_tb(error.__traceback__)[-1]
                with self.lock:
                    self.problems.append(f"{step.__name__}: {outcome}: {error} ({last.filename}:{last.lineno})")
            with self.lock:
                self.raised[outcome] += 1
                self.steps += 1

    def faults(self) -> int:
        return sum(self.device.counts().values())

    def until(self, num_faults: int, random: Random) -> None:
        """Let the device fail until that many calls have."""
        threads = [threading.Thread(target=self.work, args=(seed,)) for seed in range(self.num_threads)]
        for thread in threads:
            thread.start()
        before = -1
        try:
            while self.faults() < num_faults and len(self.problems) < 50 and self.device.usable():
                # A few slots at a time, often: where all fail, nobody gets to those that are called late or rarely.
                often = set(random.sample(self.device.slots, 5))
                self.device.set_rates({slot: 200_000 if slot in often else 500 for slot in self.device.slots})
                if self.steps != before:  # by a thread that needs no interpreter, whose lock may be what all wait for
                    before = self.steps
                    faulthandler.dump_traceback_later(patience.seconds(STALLED), exit=True)
                time.sleep(0.2)
                self.resident.append((self.steps, resident_bytes()))
        finally:
            self.stop.set()
        for thread in threads:
            thread.join()
        faulthandler.cancel_dump_traceback_later()
        self.device.set_rates({})

    def calm_down(self) -> None:
        """Errors of earlier work are reported once; after them there is nothing left."""
        gc.collect()
        for device in self.device.usable():
            for _ in range(3):
                try:
                    self.device.module.synchronize(device)
                    break
                except DOCUMENTED:
                    continue
            else:
                self.problems.append(f"device {device} cannot be synchronized")
        self.device.module.memory.empty_cache()

    def use_again(self) -> None:
        """Without faults everything works."""
        place = Place(self.device.name, seed=10**6)
        for step in STEPS * 2:
            try:
                take(place, step)
            except Exception as error:
                self.problems.append(f"afterwards: {step.__name__}: {type(error).__name__}: {error}")

    def check_memory(self) -> None:
        gc.collect()
        for device in self.device.usable():
            if left := self.device.module.memory_allocated(device):
                self.problems.append(f"{left} bytes of device {device} are still allocated")


def options_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Of the device."""
    if arguments.device != "xcpu":
        return {}
    count, modules = "64" if arguments.lose else "4", str(int(arguments.modules))
    return {"async": "1", "delay_us": "0-50", "devices": count, "fault": "", "memory": "256MiB", "modules": modules}


def run(arguments: argparse.Namespace) -> bool:
    """One process's part. Prints what happened; whether all was as it should be."""
    warnings.simplefilter("ignore")
    device = Device(arguments.device, options_of(arguments))
    compile_layers(device.name)
    warm_up = Run(device, arguments.threads)
    if not (arguments.modules or arguments.device == "ocl"):  # else calls fail while kernels are compiled
        warm_up.use_again()
    device.lose_devices(arguments.lose)
    chaos = Run(device, arguments.threads)
    chaos.problems += warm_up.problems
    chaos.until(arguments.count, Random(arguments.seed))
    if not arguments.lose:
        chaos.calm_down()
        chaos.use_again()
    chaos.check_memory()
    counts = device.counts()
    print(f"{sum(counts.values())} faults in {chaos.steps} steps, which raised {dict(chaos.raised)}")
    for slot in device.slots:
        print(f"  {slot:22}", *(f"{status}: {counts[slot, status]}" for status in device.statuses))
    growth = growth_per_step(chaos.resident)
    print(f"resident: {resident_bytes() / 2**20:.0f} MiB, {growth:.0f} bytes per step in the later half")
    for problem in chaos.problems[:20]:
        print("PROBLEM", problem[:600], file=sys.stderr)
    return not chaos.problems
