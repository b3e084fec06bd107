/* The calls that a library exports. A net's calls go to the library that it is of: a program that is linked with several libraries has the
 * functions of one of them, whichever net it calls them with. */
#include "runtime.h"

#define EXPORT __attribute__((visibility("default")))

/* Said by the library's own data; NULL in a library of kernels. */
extern const tec_model *const tec_own_model;

EXPORT int32_t tec_net_create(const tec_model *model, const tec_options *options, tec_net **net) {
  if (!net) return TEC_INVALID;
  *net = NULL;
  if (!model) model = tec_own_model;
  if (!model || model->magic != TEC_MAGIC) return TEC_INVALID;
  return model->api->create(model, options, net);
}

EXPORT void tec_net_destroy(tec_net *net) {
  if (net) net->api->destroy(net);
}

EXPORT const char *tec_net_error(const tec_net *net) { return net ? net->api->error(net) : "the net is a null pointer: no model, or no memory"; }

EXPORT int32_t tec_net_input_count(const tec_net *net) { return net ? net->api->count(net, 0) : 0; }
EXPORT int32_t tec_net_output_count(const tec_net *net) { return net ? net->api->count(net, 1) : 0; }
EXPORT const tec_port *tec_net_input(const tec_net *net, int32_t index) { return net ? net->api->port(net, 0, index) : NULL; }
EXPORT const tec_port *tec_net_output(const tec_net *net, int32_t index) { return net ? net->api->port(net, 1, index) : NULL; }

EXPORT int32_t tec_net_run(tec_net *net, const DLTensor *const *inputs, int32_t n_inputs, DLTensor *const *outputs, int32_t n_outputs) {
  return net ? net->api->run(net, inputs, n_inputs, outputs, n_outputs) : TEC_INVALID;
}

EXPORT int32_t tec_net_result(tec_net *net, int32_t index, DLTensor *tensor) { return net ? net->api->result(net, index, tensor) : TEC_INVALID; }

EXPORT int32_t tec_net_shape(tec_net *net, const DLTensor *const *inputs, int32_t n_inputs, int32_t index, int64_t *shape, int32_t room) {
  return net ? net->api->shape(net, inputs, n_inputs, index, shape, room) : TEC_INVALID;
}

EXPORT int32_t tec_net_reset(tec_net *net) { return net ? net->api->reset(net) : TEC_INVALID; }
EXPORT int64_t tec_net_rows(const tec_net *net) { return net ? net->api->rows(net) : 0; }
EXPORT int32_t tec_net_truncate(tec_net *net, int64_t rows) { return net ? net->api->truncate(net, rows) : TEC_INVALID; }
EXPORT int32_t tec_net_threads(tec_net *net, int32_t threads) { return net ? net->api->set_threads(net, threads) : TEC_INVALID; }
EXPORT DLDevice tec_net_device(const tec_net *net) {
  DLDevice cpu = {kDLCPU, 0};
  return net ? net->api->device(net) : cpu;
}

EXPORT const char *tec_net_target(const tec_net *net) { return net && net->api->abi >= 2 ? net->api->target(net) : ""; }

EXPORT int64_t tec_net_bytes(const tec_net *net) { return net ? net->api->bytes(net) : 0; }

EXPORT const tec_model *tec_library_model(void) { return tec_own_model; }
EXPORT const char *tec_model_name(const tec_model *model) { return model ? model->name : ""; }
EXPORT const char *tec_model_target(const tec_model *model) { return model ? model->target : ""; }
