# The installed torch wheel as imported targets. Asking Python rather than find_package(Torch), which needs the whole
# toolchain torch was built with (MKL, CUDA, kineto) to be found again.
set(tb_ask_torch
    "import torch, os" "abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)" "c10d = int(torch.distributed.is_available())"
    "print(os.path.dirname(torch.__file__), torch.__version__, abi, c10d, sep=chr(59), end='')")
list(JOIN tb_ask_torch "\n" tb_ask_torch)
# Without device packages: the one that is being built may be installed, and in no state to be imported.
execute_process(
  COMMAND "${CMAKE_COMMAND}" -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 "${Python_EXECUTABLE}" -c "${tb_ask_torch}"
  OUTPUT_VARIABLE tb_torch_info
  OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE tb_torch_result
  ERROR_QUIET)
if(NOT tb_torch_result EQUAL 0)
  message(
    FATAL_ERROR "torch_backend builds against an installed PyTorch and ${Python_EXECUTABLE} has none. Install torch "
                "(2.11 to 2.15) first, then build with --no-build-isolation.")
endif()
list(GET tb_torch_info 0 TORCH_DIR)
list(GET tb_torch_info 1 TORCH_VERSION)
list(GET tb_torch_info 2 TORCH_CXX11_ABI)
list(GET tb_torch_info 3 TORCH_HAS_DISTRIBUTED)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" TORCH_MAJOR_MINOR "${TORCH_VERSION}")
if(TORCH_MAJOR_MINOR VERSION_LESS 2.11)
  message(FATAL_ERROR "torch_backend needs torch 2.11 or later; ${Python_EXECUTABLE} has ${TORCH_VERSION}.")
endif()
message(STATUS "torch ${TORCH_VERSION} in ${TORCH_DIR}")

set(tb_torch_include "${TORCH_DIR}/include" "${TORCH_DIR}/include/torch/csrc/api/include")

add_library(tb_torch_core INTERFACE)
target_include_directories(tb_torch_core SYSTEM INTERFACE ${tb_torch_include})
# AT_PER_OPERATOR_HEADERS: torch's own headers then include single operators' rather than all 4000.
target_compile_definitions(tb_torch_core INTERFACE _GLIBCXX_USE_CXX11_ABI=${TORCH_CXX11_ABI} AT_PER_OPERATOR_HEADERS)
target_link_libraries(tb_torch_core INTERFACE "${TORCH_DIR}/lib/libtorch_cpu.so" "${TORCH_DIR}/lib/libc10.so")
add_library(torch::core ALIAS tb_torch_core)

add_library(tb_torch_python INTERFACE)
target_link_libraries(tb_torch_python INTERFACE tb_torch_core "${TORCH_DIR}/lib/libtorch_python.so")
target_include_directories(tb_torch_python SYSTEM INTERFACE ${Python_INCLUDE_DIRS})
add_library(torch::python ALIAS tb_torch_python)
