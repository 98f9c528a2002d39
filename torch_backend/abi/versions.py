"""The version of the contract that this package mirrors."""

ABI_MAJOR = 1
ABI_MINOR = 0
ENTRY_NAME = "tb_plugin_entry"
