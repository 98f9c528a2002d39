# What goes into the wheel, below torch_backend/: the extension, the libraries, the header and the CMake package.
include(CMakePackageConfigHelpers)

set(tb_package "${SKBUILD_PROJECT_NAME}")
if(NOT tb_package)
  set(tb_package torch_backend)
endif()

install(TARGETS _C LIBRARY DESTINATION ${tb_package})
install(TARGETS torch_backend_core torch_backend_host LIBRARY DESTINATION ${tb_package}/lib)
if(TB_PLUGIN_DIR) # not stripped, as targets are: the files stay what they are
  foreach(tb_device fake xcpu)
    install(PROGRAMS "${TB_PLUGIN_DIR}/libtorch_backend_${tb_device}.so" DESTINATION ${tb_package}/lib)
  endforeach()
else()
  install(TARGETS torch_backend_fake torch_backend_xcpu LIBRARY DESTINATION ${tb_package}/lib)
endif()
# The extension works with the minor version of torch it was built with and no other: the package checks that first.
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/torch_version.txt" "${TORCH_VERSION}\n")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/torch_version.txt" DESTINATION ${tb_package}/lib)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION ${tb_package}/include)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/backends/common" DESTINATION ${tb_package}/sdk)

# find_package(torch_backend) gives a plugin the target torch_backend::device, and a program that uses libtorch
# torch_backend::torch_backend. It is found with -DCMAKE_PREFIX_PATH=$(python -m torch_backend --cmake-dir).
set(TB_LIBRARY_DIR ${tb_package}/lib)
set(TB_SDK_DIR ${tb_package}/sdk)
install(TARGETS torch_backend_device EXPORT torch_backend_targets INCLUDES DESTINATION ${tb_package}/include)
install(EXPORT torch_backend_targets NAMESPACE torch_backend:: DESTINATION ${tb_package}/share/cmake/torch_backend)
set_target_properties(torch_backend_device PROPERTIES EXPORT_NAME device)
configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/torch_backendConfig.cmake.in" "${CMAKE_CURRENT_BINARY_DIR}/torch_backendConfig.cmake"
  INSTALL_DESTINATION ${tb_package}/share/cmake/torch_backend PATH_VARS TB_LIBRARY_DIR TB_SDK_DIR)
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/torch_backendConfigVersion.cmake"
                                 COMPATIBILITY SameMajorVersion ARCH_INDEPENDENT)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/torch_backendConfig.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/torch_backendConfigVersion.cmake"
        DESTINATION ${tb_package}/share/cmake/torch_backend)
