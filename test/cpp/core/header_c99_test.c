/* The headers compile alone, as strict C99. Compiling this file is the test; a C++ test calls what it defines. */
#define _DEFAULT_SOURCE /* address_map.h: MAP_ANONYMOUS */
#include "torch_backend/address_map.h"
#include "torch_backend/device.h"

tb_status header_c99_test(void);

#define COUNT(name, value, text) +1
tb_status header_c99_test(void) {
  return (0 TB_STATUS_LIST(COUNT)) == TB_STATUS_COUNT_ ? TB_STATUS_OK : TB_STATUS_INTERNAL;
}
