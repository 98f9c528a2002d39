"""The functions that Inductor's kernels call of a device's math library, of what Triton has itself."""

import triton
import triton.language as tl
from triton.language import math


@triton.jit
def exp(x):
    return math.exp(x)


@triton.jit
def sqrt(x):
    return math.sqrt(x)


@triton.jit
def rsqrt(x):
    return 1 / math.sqrt(x)


@triton.jit
def erf(x):
    return math.erf(x)


@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def log1p(x):
    return math.log(1 + x)


@triton.jit
def pow(x, y):
    """Of what is positive."""
    return math.exp(y * math.log(x))
