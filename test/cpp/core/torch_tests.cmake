# Tests of the core, which link torch. Included from test/cpp/CMakeLists.txt in the project's build, or for sanitizers.

# One program per topic: sources beside each other share a process, so state that is global must not matter to them.
function(tb_add_torch_test target)
  add_executable(${target} ${ARGN} support/child_process.cpp support/sanitizer_options.cpp)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter)
  target_include_directories(${target} PRIVATE ${TB_ROOT}/test/cpp ${TB_ROOT}/backends)
  target_link_libraries(${target} PRIVATE torch_backend_core GTest::gtest_main Threads::Threads)
  if(TB_SANITIZE_CORE)
    add_test(NAME ${target} COMMAND ${target}) # loading torch takes longer than most tests
  else()
    gtest_discover_tests(${target} DISCOVERY_TIMEOUT ${TB_SECONDS_WITH_TORCH} PROPERTIES
                         TIMEOUT ${TB_SECONDS_WITH_TORCH})
  endif()
endfunction()

tb_add_torch_test(caching_allocator_test core/allocator_test_device.cpp core/caching_allocator_stress_test.cpp
                  core/caching_allocator_test.cpp core/expandable_segments_test.cpp core/lent_memory_test.cpp)

# On a device with memory and threads of its own.
tb_add_torch_test(allocator_model_test core/allocator_model_test.cpp core/allocator_test_device.cpp
                  ${TB_ROOT}/backends/common/testing/plugin_instance.cpp)
tb_use_plugin(allocator_model_test TB_XCPU_PLUGIN torch_backend_xcpu)

tb_add_torch_test(device_api_test core/device_api_test.cpp)
if(TB_SANITIZE STREQUAL "thread")
  # The thread sanitizer's pthread_once never returns to those who call it after the function has thrown.
  set(tb_throwing_once AFailedStartIsTriedAgain TheDriverIsNotStartedTwice PropertiesThatCannotBe
                       CapabilitiesWithoutTheirSlots CapabilitiesThatMustNotDiffer)
  list(TRANSFORM tb_throwing_once PREPEND "DeviceApiTest.")
  list(JOIN tb_throwing_once ":" tb_throwing_once)
  set_tests_properties(device_api_test PROPERTIES ENVIRONMENT "GTEST_FILTER=-${tb_throwing_once}")
endif()
