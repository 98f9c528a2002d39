"""The constants of device.h, as classes that are named after what they number."""

from enum import IntEnum, IntFlag


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
    GENERATOR = 10
    INT_LIST = 0x101
    FLOAT_LIST = 0x103
    TENSOR_LIST = 0x107


class Capability(IntFlag):
    """TB_CAP_*."""

    ASYNC = 1 << 0
    HOST_ACCESS = 1 << 1
    HOST_COHERENT = 1 << 2
    PAGEABLE_ACCESS = 1 << 3
    STREAM_ALLOC = 1 << 4
    EVENT_TIMING = 1 << 5
    EVENT_RERECORD = 1 << 6
    PEER = 1 << 7
    IPC = 1 << 8
    GRAPH = 1 << 9
    VIRTUAL_MEMORY = 1 << 10

    @classmethod
    def names(cls, flags: int) -> frozenset[str]:
        """The names of the flags that are set. Bits that device.h does not list have none."""
        return frozenset(name for name, flag in cls.__members__.items() if flag & flags)


class MemoryKind(IntEnum):
    """TB_MEMORY_*."""

    DEVICE = 0
    HOST = 1
    SHARED = 2
    UNKNOWN = 3


class CopyKind(IntEnum):
    """TB_COPY_*."""

    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    PEER = 4


class MapAccess(IntFlag):
    """TB_MAP_*."""

    READ = 1
    WRITE = 2


class EventFlag(IntFlag):
    """TB_EVENT_*."""

    TIMING = 1
    INTERPROCESS = 2


class CaptureMode(IntEnum):
    """TB_CAPTURE_*."""

    GLOBAL = 0
    THREAD_LOCAL = 1
    RELAXED = 2


class KernelFlag(IntFlag):
    """TB_KERNEL_*."""

    NEEDS_CONTIGUOUS = 1
    ALLOCATES_OUTPUT = 2
    MIXED_DTYPES = 4
    NUMBERS = 8
    MATH_FLAGS = 16
    INPUT_DTYPES = 32


class MathFlag(IntFlag):
    """TB_MATH_*: what a program allows kernels."""

    TF32_MATMUL = 1
    TF32_CONV = 2
    FP16_REDUCTION = 4
    BF16_REDUCTION = 8
    FP16_ACCUMULATION = 16
    DETERMINISTIC = 32


class ParamKind(IntEnum):
    """TB_PARAM_*: what a parameter of a launch is."""

    VALUE = 0
    POINTER = 1
    LOCAL = 2


class Reduction(IntEnum):
    """TB_REDUCE_*."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    AVERAGE = 4


class TraceKind(IntFlag):
    """TB_TRACE_*."""

    KERNEL = 1
    COPY = 2
    FILL = 4
    RUNTIME = 8


class LogLevel(IntEnum):
    """TB_LOG_*."""

    DEBUG = 0
    INFO = 1
    WARNING = 2
    ERROR = 3
