"""What a device says it can do, or shows when it is asked: the one ground on which the kit leaves a test out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch_conformance.features import FEATURES


@dataclass(frozen=True)
class Declaration:
    """What a device has.

    Attributes:
        name: the torch device name.
        device_count: number of devices.
        dtypes: the dtypes that every device stores and computes in, as torch names them without "torch.".
        features: by the name of a feature, why the device has not got it, or None where it has. What is not named is
            asked at the first test that is about it, see :mod:`torch_conformance.features`.
        strict: whether the device has to have every feature that CUDA has, whatever it answers.
        capabilities: of a device library, names of the TB_CAP_ flags that every device has, without the prefix.
        tables: of a device library, its optional tables, "kernels.1".
        slots: of a device library, the slots of tb_core_table that are set. Known only to tests of the bare library.
    """

    name: str
    device_count: int
    dtypes: frozenset[str]
    features: Mapping[str, str | None] = field(default_factory=dict)
    strict: bool = False
    capabilities: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    slots: frozenset[str] | None = None

    def lacks(self, kind: str, value: object) -> str | None:
        """Why a test that needs ``value`` is left out, as a readable reason; None if the device has it.

        ``kind`` is the name of a function of :mod:`torch_conformance.needs`.
        """
        match kind, value:
            case "capability", str():
                return None if value in self.capabilities else f"the device does not declare TB_CAP_{value}"
            case "devices", int():
                return None if self.device_count >= value else f"needs {value} devices, there is {self.device_count}"
            case "dtype", str():
                return None if value in self.dtypes else f"the device does not declare the dtype {value}"
            case "table", str():
                return None if value in self.tables else f"the device library has no table {value}"
            case "slot", str():
                if self.slots is None:
                    raise ValueError("Only tests of the bare device library can need a slot.")
                return None if value in self.slots else f"the device library leaves the slot {value} unset"
            case "feature", str():
                return self._lacks_feature(value)
        raise ValueError(f"A test cannot need {kind} {value!r}.")

    def _lacks_feature(self, name: str) -> str | None:
        if self.strict and FEATURES[name].is_cudas:
            return None
        if name in self.features:
            return self.features[name]
        if name not in _answers.setdefault(self.name, {}):
            _answers[self.name][name] = FEATURES[name].lacks(self.name)  # may take a second
        return _answers[self.name][name]


_answers: dict[str, dict[str, str | None]] = {}
