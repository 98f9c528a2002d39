"""Text from a language model, greedily, by top-k and by chance, without a call that falls back."""

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE
from test_training import Decoder


def choose_greedily(scores):
    return scores.argmax(-1, keepdim=True)


def choose_of_best(scores):
    best, places = scores.topk(5)
    return places.gather(-1, torch.multinomial(F.softmax(best, -1), 1))


def choose_by_chance(scores):
    return torch.multinomial(F.softmax(scores / 0.8, -1), 1)


def generate(model, tokens, choose):
    with torch.no_grad():
        while tokens.shape[1] < 16:
            tokens = torch.cat([tokens, choose(model(tokens)[:, -1])], 1)
    return tokens


@pytest.mark.parametrize("choose", [choose_greedily, choose_of_best, choose_by_chance])
def test_tokens_follow(choose):
    torch.manual_seed(3)
    model, prompt = Decoder(), torch.randint(20, (4, 3))
    expected = generate(model, prompt, choose_greedily)
    model = model.to(DEVICE)
    torch.manual_seed(3)
    tokens = generate(model, prompt.to(DEVICE), choose)
    if choose is choose_greedily:
        assert tokens.cpu().equal(expected)
    torch.manual_seed(3)
    assert generate(model, prompt.to(DEVICE), choose).cpu().equal(tokens.cpu())
    assert tokens[:, :3].cpu().equal(prompt)
    with torch.no_grad():
        allowed = model(tokens[:, :-1]).topk(5 if choose is choose_of_best else 20).indices.cpu()
    assert (allowed[:, 2:] == tokens.cpu()[:, 3:, None]).any(-1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("samples", "replacement"), [(1, False), (2, True), (2, False)])
def test_multinomial_draws_by_weight(dtype, samples, replacement):
    """Frequencies of 20,000 draws are within 5 standard deviations of the probabilities."""
    torch.manual_seed(0)
    weights = torch.tensor([1.0, 0.0, 2.0, 5.0])
    drawn = torch.multinomial(weights.to(DEVICE, dtype).expand(20_000, 4), samples, replacement).cpu()
    expected = weights / 8
    deviation = (expected * (1 - expected) / 20_000).sqrt()
    for column in drawn.unbind(1)[: samples if replacement else 1]:
        frequency = column.bincount(minlength=4) / 20_000
        assert ((frequency - expected).abs() <= 5 * deviation + (4e-3 if dtype is torch.bfloat16 else 0)).all()
    if samples == 2 and not replacement:
        assert (drawn[:, 0] != drawn[:, 1]).all()
        # After 3, which is drawn with 5/8, the first one has 1/3.
        after = drawn[drawn[:, 0] == 3, 1]
        assert abs((after == 0).float().mean() - 1 / 3) < 0.03


@pytest.mark.parametrize(
    ("weights", "message"), [([1.0, -1.0], "element < 0"), ([1.0, float("nan")], "nan"), ([0.0, 0.0], "sum of prob")]
)
def test_multinomial_refuses_what_is_no_distribution(weights, message):
    with pytest.raises(RuntimeError, match=message):
        torch.multinomial(torch.tensor(weights).to(DEVICE), 1).cpu()
