# Kernels in CUDA C++ on the host's processor, whose items run side by side.
set(TB_SIMT_DIR ${CMAKE_CURRENT_LIST_DIR})

# Adds that to `target`, whose include directories have the folder of common/.
function(torch_backend_simt target)
  foreach(text kernel_abi prelude)
    file(READ ${TB_SIMT_DIR}/${text}.h simt_${text})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${TB_SIMT_DIR}/${text}.h)
  endforeach()
  configure_file(${TB_SIMT_DIR}/prelude_text.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/simt_prelude_text.cpp @ONLY)
  foreach(source block compile fiber program races translation)
    target_sources(${target} PRIVATE ${TB_SIMT_DIR}/${source}.cpp)
  endforeach()
  foreach(source compiler library temporary_directory)
    target_sources(${target} PRIVATE ${TB_SIMT_DIR}/../host_compiler/${source}.cpp)
  endforeach()
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/simt_prelude_text.cpp)
endfunction()
