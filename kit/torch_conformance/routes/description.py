"""What a device of PyTorch is and has: a program that is told a route, and prints the answer as JSON."""

import json
import sys
from dataclasses import asdict


def main(route: str) -> int:
    """Go the route, and print what is found."""
    from torch_conformance import routes
    from torch_conformance.features import FEATURES
    from torch_conformance.report.findings import DeviceDescription
    from torch_conformance.routes.pytorch import device_name

    try:
        declaration = routes.activate(routes.parse(route))
    except (ImportError, ValueError) as error:
        print(str(error).strip().replace("\n", " "))
        return routes.NoSuchDevice.EXIT_CODE
    import torch

    found = DeviceDescription(
        name=declaration.name,
        is_library=False,
        torch=torch.__version__,
        properties=tuple(
            {"name": device_name(declaration.name, index) or f"{declaration.name}:{index}"}
            for index in range(declaration.device_count)
        ),
        features={name: declaration.lacks("feature", name) for name in FEATURES},
        dtypes=tuple(sorted(declaration.dtypes)),
    )
    print(json.dumps(asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
