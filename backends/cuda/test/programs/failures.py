"""Prints what a call that fails says."""

import sys

import torch


def calls() -> None:
    with torch.xcuda.stream(torch.xcuda.Stream()):
        x = torch.ones(4, device="xcuda") * 3
        torch.xcuda.Event().record()
        x.tolist()


def products() -> None:
    x = torch.ones(4, 4, device="xcuda")
    x @ x


def convolutions() -> None:
    torch.conv2d(torch.ones(1, 1, 2, 2, device="xcuda"), torch.ones(1, 1, 1, 1, device="xcuda"))


def attention() -> None:
    layer = torch.nn.MultiheadAttention(32, 2, batch_first=True).to("xcuda", torch.float16)
    x = torch.randn(4, 6, 32, dtype=torch.float16).to("xcuda")
    try:
        with torch.no_grad():
            layer.train()(x, x, x, need_weights=False)
    finally:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            assert layer(x, x, x, need_weights=False)[0].shape == x.shape


try:
    {"calls": calls, "products": products, "convolutions": convolutions, "attention": attention}[sys.argv[1]]()
except RuntimeError as error:
    print(error)
