/* tb_host.option. */
#ifndef TORCH_BACKEND_CSRC_HOST_OPTION_H_
#define TORCH_BACKEND_CSRC_HOST_OPTION_H_

const char* tb_host_option(const char* key);

#endif
