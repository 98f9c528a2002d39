"""Packages of AOTInductor for devices whose memory the host can access."""

from fixtures import RunPython
from packages import (  # noqa: F401
    a_package,
    test_a_device_is_chosen_when_a_package_is_loaded,
    test_a_program_on_the_cpu_stays_there,
    test_constants_are_replaced,
    test_inputs_that_it_was_not_compiled_for_are_refused,
    test_memory_and_random_numbers_are_those_of_the_device,
    test_results_are_those_of_the_cpu,
)

XCPU = {"TORCH_BACKEND": "xcpu"}
LATE = XCPU | {"TORCH_BACKEND_XCPU_ASYNC": "1", "TORCH_BACKEND_XCPU_DELAY_US": "0-100"}


def test_streams_and_threads(run_python: RunPython, path: str) -> None:
    """A package runs after what is on the thread's stream, and what follows sees what it has written."""
    run_python(
        f"""
        import threading, torch
        package = torch._inductor.aoti_load_package({path!r})
        across = torch.ones(50, 6, device="xcpu").t()
        index = torch.tensor([0, 0], device="xcpu")
        double = torch.compile(lambda x: x * 2)  # on a stream this is a function of Python
        errors = []
        def call(thread):
            try:
                with torch.xcpu.stream(torch.xcpu.Stream()):
                    for turn in range(40):
                        value = float(thread * 100 + turn)
                        x = double(torch.full((3, 4), value / 2, device="xcpu"))
                        changed = torch.full((6, 2), value, device="xcpu")[:, 0]
                        results = package(x, across, index, changed)
                        x.zero_()
                        changed.add_(1)
                        assert results["row"].tolist() == [[value] * 4] * 2, (results["row"], value)
                        assert (results["changed"] + changed).tolist() == [4 * value + 2] * 6
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=call, args=(thread,)) for thread in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors
        calls = package(torch.ones(2, 4, device="xcpu"), across, index, across.new_zeros(6, 2)[:, 0])["calls"]
        assert calls.tolist() == [81.0] * 3
        """,
        env=LATE,
    )


def test_what_cannot_be_packaged_is_said(run_python: RunPython) -> None:
    run_python(
        """
        import torch
        x = torch.rand(3, device="xcpu")
        def refused(call, package=True):
            class Model(torch.nn.Module):
                def forward(self, x):
                    return call(x)
            program = torch.export.export(Model(), (x,))
            try:
                if package:
                    torch._inductor.aoti_compile_and_package(program)
                else:
                    torch._inductor.aot_compile(program.module(), (x,))
            except Exception as error:
                return str(error)
            return "not refused"
        assert "would call aten.multinomial.default on the device" in refused(lambda x: torch.multinomial(x, 1))
        assert "no library alone for xcpu" in refused(lambda x: x + 1, package=False)
        several = refused(lambda x: x + 1 + torch.ones(3, device="xcpu:1").to(x.device))
        assert "no package of this for xcpu: generated code runs on one device" in several
        del torch._inductor.output_code.CompiledAOTI
        assert "output_code.CompiledAOTI is not there, as it was in torch" in refused(lambda x: x + 1)
        """,
        env=XCPU,
    )


def test_a_device_of_another_kind_is_refused(run_python: RunPython, path: str) -> None:
    run_python(
        f"""
        import torch, torch_backend
        torch_backend.activate("xcpu", options={{"modules": "1"}})
        try:
            torch._inductor.aoti_load_package({path!r})
        except NotImplementedError as error:
            assert "needs memory that the host can access, and xcpu has none" in str(error), error
        else:
            raise AssertionError("not refused")
        """
    )
