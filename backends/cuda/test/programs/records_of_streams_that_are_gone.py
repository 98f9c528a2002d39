from torch_conformance import bare

from torch_backend.abi import tb_trace_callback

library, _ = bare.open_library("xcuda")
device = library.devices[0]
table, found = library.tables["prof.1"], []
assert table.trace_start(2) == 0
streams, memory = [], device.allocate(64)
for _ in range(3):
    with device.stream() as stream:
        device.write(memory, bytes(64), stream)
        streams.append(stream)
device.write(memory, bytes(64))
assert table.trace_stop() == 0


@tb_trace_callback
def take(_, record) -> None:
    found.append(record.contents.stream)


assert table.trace_collect(take, None) == 0
assert found == [*streams, 0]
