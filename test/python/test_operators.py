"""torch_backend.operators: where kernels come from, and counting calls."""

import pytest
import torch

from torch_backend import fallback, operators

pytestmark = pytest.mark.usefixtures("backend")


def test_every_operator_has_a_source() -> None:
    sources = operators.operator_sources()
    assert len(sources) > 2000
    assert set(sources.values()) <= {*operators.SOURCES, "unavailable"}
    assert sources["aten::empty.memory_format"] == "native"
    assert sources["aten::matmul"] == "composite"


def test_sources_agree_with_the_fallback(name: str) -> None:
    with fallback.policy(None, "allow"), operators.count_calls() as counts:
        fallback.reset()
        torch.linalg.qr(torch.eye(4).to(name))
        fell_back = {entry.op for entry in fallback.report()}
    assert {op: operators.operator_sources()[op] for op in fell_back} == dict.fromkeys(fell_back, "fallback")
    assert fell_back <= {entry.op for entry in counts.entries if entry.source == "fallback"}


def test_counting(name: str) -> None:
    x = torch.ones(4, device=name)
    with operators.count_calls() as counts:
        for _ in range(3):
            torch.add(x, x)
    calls = {entry.op: entry for entry in counts.entries}
    assert calls["aten::add.Tensor"].calls == 3
    assert counts.calls == sum(counts.by_source().values()) >= 3
    assert set(counts.by_source()) == set(operators.SOURCES)
    assert f"{calls['aten::add.Tensor'].source} " in str(counts)
    with operators.count_calls() as again:
        pass
    assert again.calls == 0


def test_counting_twice_at_once() -> None:
    with operators.count_calls(), pytest.raises(RuntimeError, match="cannot be nested"), operators.count_calls():
        pass
    with operators.count_calls():
        pass
