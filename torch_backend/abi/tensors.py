"""Dtypes, tensors and the arguments of kernels."""

import ctypes
from enum import IntEnum

from torch_backend.abi._fields import F64, I32, I64, U8, U16, U32, U64, Pointer, c_struct


class DTypeCode(IntEnum):
    """TB_DTYPE_*: DLPack's type codes."""

    INT = 0
    UINT = 1
    FLOAT = 2
    BFLOAT = 4
    COMPLEX = 5
    BOOL = 6
    FLOAT8_E4M3FN = 10
    FLOAT8_E4M3FNUZ = 11
    FLOAT8_E5M2 = 12
    FLOAT8_E5M2FNUZ = 13
    FLOAT8_E8M0FNU = 14


class DeviceType(IntEnum):
    """DLPack's kinds of devices, as tb_device_id.type uses them."""

    CPU = 1
    EXTENSION = 12


class ArgTag(IntEnum):
    """TB_ARG_*: what a tb_arg holds."""

    NONE = 0
    INT = 1
    BOOL = 2
    FLOAT = 3
    POINTER = 4
    DTYPE = 5
    DEVICE = 6
    TENSOR = 7
    STRING = 8
    COMPLEX = 9
    INT_LIST = 0x101
    FLOAT_LIST = 0x103
    TENSOR_LIST = 0x107


@c_struct
class tb_device_id(ctypes.Structure):
    """The device of a tensor."""

    type: I32
    index: I32


@c_struct
class tb_dtype(ctypes.Structure):
    """A dtype."""

    code: U8
    bits: U8
    lanes: U16


@c_struct
class tb_tensor(ctypes.Structure):
    """A strided tensor; ``shape`` and ``strides`` are addresses of int64_t[ndim]."""

    data: Pointer
    device: tb_device_id
    ndim: I32
    dtype: tb_dtype
    shape: Pointer
    strides: Pointer
    byte_offset: U64


@c_struct
class tb_arg_value(ctypes.Union):
    """The value of a tb_arg; which member counts is what its tag says."""

    i: I64
    f: F64
    p: Pointer
    dtype: tb_dtype
    device: tb_device_id


@c_struct
class tb_arg(ctypes.Structure):
    """One argument of a kernel."""

    tag: I32
    length: U32
    v: tb_arg_value
