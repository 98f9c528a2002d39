# slots.h, the slots of device.h as lists for the preprocessor (codegen/slots.py), in TB_SLOT_LISTS_DIR. Written when
# the build is configured, which it is again when the header has changed.
get_filename_component(tb_slots_root "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
set(TB_SLOT_LISTS_DIR "${CMAKE_BINARY_DIR}/slot_lists")
set(tb_slots_inputs "include/torch_backend/device.h" "torch_backend/abi/header.py" "codegen/slots.py")
list(TRANSFORM tb_slots_inputs PREPEND "${tb_slots_root}/")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tb_slots_inputs})
execute_process(COMMAND "${Python_EXECUTABLE}" -m codegen.slots include/torch_backend/device.h
                        "${TB_SLOT_LISTS_DIR}/slots.h" WORKING_DIRECTORY "${tb_slots_root}" COMMAND_ERROR_IS_FATAL ANY)
