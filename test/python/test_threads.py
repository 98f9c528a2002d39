"""Several threads on one asynchronous device: what one of them computes is not touched by the memory of the others."""

from fixtures import RunPython

ASYNC = {
    "TORCH_BACKEND": "xcpu",
    "TORCH_BACKEND_XCPU_ASYNC": "1",
    "TORCH_BACKEND_XCPU_DEVICES": "1",
    "TORCH_BACKEND_XCPU_DELAY_US": "2000",
}

# A CPU kernel that runs for the device, after its stream was waited for. While it runs, another thread enqueues work on
# the same stream and frees the memory of it; then the kernel allocates.
HOST_CALL = """
    import threading
    import torch

    N, TURNS = 128, 40
    library = torch.library.Library("threads", "DEF")
    library.define("probe(Tensor x) -> Tensor")
    inside, enqueued, allocated, checked = (threading.Event() for _ in range(4))
    written = []

    def probe(x):
        inside.set()
        assert enqueued.wait(100)
        memory = [torch.full((N,), 7.0) for _ in range(TURNS)]
        allocated.set()
        assert checked.wait(100)
        written.append([bool((m == 7.0).all()) for m in memory])
        return torch.stack(memory)

    library.impl("probe", probe, "CPU")
    results = []

    def other_thread():
        assert inside.wait(100)
        sums = []
        for i in range(TURNS):
            x = torch.full((N,), float(i), device="xcpu")
            sums.append(x + x)
        del x
        enqueued.set()
        assert allocated.wait(100)
        results.append([bool((s.cpu() == 2 * i).all()) for i, s in enumerate(sums)])
        checked.set()

    x = torch.ones(3, device="xcpu")
    (x + x).cpu()
    thread = threading.Thread(target=other_thread)
    thread.start()
    probed = torch.ops.threads.probe(x)
    thread.join()
    assert probed.device.type == "xcpu", probed.device
    print("kernel:", all(written[0]), "other thread:", all(results[0]), "result:", bool((probed == 7).all()))
"""


def test_a_kernel_on_the_host_gets_no_memory_that_enqueued_work_still_uses(run_python: RunPython) -> None:
    output = run_python(HOST_CALL, env=ASYNC).stdout
    assert output == "kernel: True other thread: True result: True\n"


# The same with operators that PyTorch has, which find the moment by chance.
OPERATORS = """
    import threading
    import torch

    CASES = {
        "unique": lambda x: torch.unique(x),
        "nonzero": lambda x: torch.nonzero(x > 20),
        "mask": lambda x: x[x > 20],
        "randperm": lambda x: torch.randperm(len(x), device=x.device).sort().values,
        "qr": lambda x: torch.linalg.qr(x.double().view(10, -1)).R.abs(),
        "layer_norm": lambda x: torch.nn.functional.layer_norm(x.double(), x.shape),
    }
    wrong, checks, done = [], [0], threading.Event()

    def on_the_host():
        try:
            for i in range(150):
                values = torch.randint(0, 50, (200,))
                x = values.to("xcpu")
                for name, case in CASES.items():
                    result, expected = case(x).cpu(), case(values)
                    if not (result.shape == expected.shape and torch.allclose(result, expected)):
                        wrong.append(name)
        finally:
            done.set()

    def on_the_stream():
        turn = 0
        while not done.is_set():
            turn += 1
            sums = []
            for i in range(40):
                x = torch.full((40 + 8 * (i % 24),), turn + i, device="xcpu")
                sums.append(((x + 1) + (x + 2)) + 1)
            for i, total in enumerate(sums):
                checks[0] += 1
                if not bool((total.cpu() == 2 * (turn + i) + 4).all()):
                    wrong.append("add")

    threads = [threading.Thread(target=work) for work in (on_the_host, on_the_stream)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert checks[0] > 100, checks
    print("wrong:", wrong)
"""


def test_operators_on_the_host_beside_work_on_the_same_stream(run_python: RunPython) -> None:
    environment = ASYNC | {"TORCH_BACKEND_XCPU_DELAY_US": "0-100"}
    assert run_python(OPERATORS, env=environment).stdout == "wrong: []\n"
