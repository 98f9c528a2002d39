# For the CMakeLists.txt of a device library: find_package(torch_backend) has it.
set(TB_COMMON_DIR ${CMAKE_CURRENT_LIST_DIR})

# The device library `target` of these sources, in C99 or C++20, and of those of this folder that it names with COMMON.
function(torch_backend_device_library target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "COMMON")
  list(TRANSFORM arg_COMMON PREPEND ${TB_COMMON_DIR}/)
  add_library(${target} MODULE ${arg_UNPARSED_ARGUMENTS} ${arg_COMMON})
  set_target_properties(
    ${target}
    PROPERTIES C_STANDARD 99
               C_STANDARD_REQUIRED ON
               C_EXTENSIONS OFF
               C_VISIBILITY_PRESET hidden
               CXX_STANDARD 20
               CXX_STANDARD_REQUIRED ON
               CXX_EXTENSIONS OFF
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               PREFIX lib)
  # What an initializer leaves out is zero, and meant to be. A function of C that differs from its slot in device.h must
  # not compile: nothing notices it later.
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>
                                           $<$<COMPILE_LANGUAGE:C>:-Werror=incompatible-pointer-types>)
  find_package(Threads REQUIRED)
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(${target} PRIVATE LINKER:--version-script=${TB_COMMON_DIR}/exports.map)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${TB_COMMON_DIR}/exports.map)

  target_include_directories(${target} PRIVATE ${TB_COMMON_DIR}/..)
  if(TARGET torch_backend::device)
    target_link_libraries(${target} PRIVATE torch_backend::device)
  else() # the checkout's own devices, alone
    target_include_directories(${target} PRIVATE ${TB_COMMON_DIR}/../../include)
  endif()

  if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo PARENT_SCOPE)
  endif()
endfunction()
