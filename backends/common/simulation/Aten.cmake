# Simulated libraries whose results ATen's CPU kernels compute, of the torch that is installed for Python.
find_package(Python REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "import importlib.util; print(importlib.util.find_spec('torch').origin)"
  OUTPUT_VARIABLE torch OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
cmake_path(GET torch PARENT_PATH torch)

function(compute_with_aten simulated)
  target_sources(${simulated} PRIVATE "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/aten.cpp")
  target_include_directories(${simulated} SYSTEM PRIVATE ${torch}/include)
  target_precompile_headers(${simulated} PRIVATE <ATen/ATen.h>)
  target_link_libraries(${simulated} PRIVATE ${torch}/lib/libtorch_cpu.so ${torch}/lib/libc10.so)
  set_property(TARGET ${simulated} APPEND PROPERTY BUILD_RPATH "${torch}/lib")
endfunction()
