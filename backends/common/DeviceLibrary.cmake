# What every device's CMakeLists.txt ends with.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

find_package(Threads REQUIRED)

set(TB_COMMON_DIR ${CMAKE_CURRENT_LIST_DIR})

# The device library `target` of these sources, and of those of this folder that it names with COMMON.
function(tb_device_library target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "COMMON")
  set(sources ${arg_UNPARSED_ARGUMENTS})
  foreach(source IN LISTS arg_COMMON)
    list(APPEND sources ${TB_COMMON_DIR}/${source})
  endforeach()
  add_library(${target} MODULE ${sources})
  set_target_properties(
    ${target}
    PROPERTIES CXX_STANDARD 17
               CXX_STANDARD_REQUIRED ON
               CXX_EXTENSIONS OFF
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               PREFIX lib)
  target_compile_options(${target} PRIVATE -Wall -Wextra)
  target_include_directories(${target} PRIVATE ${TB_COMMON_DIR}/..)
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(${target} PRIVATE LINKER:--version-script=${TB_COMMON_DIR}/exports.map)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${TB_COMMON_DIR}/exports.map)

  # The one dependency: the directory that holds torch_backend/device.h, installed or in this source tree.
  if(PROJECT_IS_TOP_LEVEL)
    find_package(torch_backend CONFIG QUIET)
  endif()
  if(TARGET torch_backend::device)
    target_link_libraries(${target} PRIVATE torch_backend::device)
  else()
    target_include_directories(${target} PRIVATE ${TB_COMMON_DIR}/../../include)
  endif()

  if(PROJECT_IS_TOP_LEVEL)
    include(GNUInstallDirs)
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endfunction()
