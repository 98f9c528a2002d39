# Builds everything after it with the sanitizer that TB_SANITIZE names. A report ends the test.
set(tb_sanitizers_address -fsanitize=address,undefined -fno-sanitize-recover=all)
set(tb_sanitizers_thread -fsanitize=thread)
if(NOT DEFINED tb_sanitizers_${TB_SANITIZE})
  message(FATAL_ERROR "TB_SANITIZE is \"${TB_SANITIZE}\"; it has to be address or thread.")
endif()
add_compile_options(${tb_sanitizers_${TB_SANITIZE}} -fno-omit-frame-pointer)
add_link_options(${tb_sanitizers_${TB_SANITIZE}})
# Enough for stacks with lines, and built in half the time.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g1")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
