# Simulated libraries whose results ATen's CPU kernels compute, of the torch that is installed for Python.
find_package(Python REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "import importlib.util; print(importlib.util.find_spec('torch').origin)"
  OUTPUT_VARIABLE torch OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
cmake_path(GET torch PARENT_PATH torch)

# Compiles ATen's header once for all of them.
add_library(simulation_aten STATIC "${CMAKE_CURRENT_LIST_DIR}/aten.cpp")
set_target_properties(
  simulation_aten
  PROPERTIES CXX_STANDARD 20
             CXX_STANDARD_REQUIRED ON
             CXX_VISIBILITY_PRESET hidden
             VISIBILITY_INLINES_HIDDEN ON
             POSITION_INDEPENDENT_CODE ON)
target_compile_options(simulation_aten PRIVATE -Wall -Wextra -O2)
target_include_directories(simulation_aten SYSTEM PUBLIC ${torch}/include)
target_precompile_headers(simulation_aten PRIVATE <ATen/ATen.h>)
target_link_libraries(simulation_aten PUBLIC ${torch}/lib/libtorch_cpu.so ${torch}/lib/libc10.so)

function(compute_with_aten simulated)
  target_precompile_headers(${simulated} REUSE_FROM simulation_aten)
  target_link_libraries(${simulated} PRIVATE simulation_aten)
  set_property(TARGET ${simulated} APPEND PROPERTY BUILD_RPATH "${torch}/lib")
endfunction()
