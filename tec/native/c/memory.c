/* Memory where a net computes: the host's, or a GPU's. */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static const tec_gpu_api *gpu_of(const tec_net *net) { return net->gpu ? net->model->gpu_api : NULL; }

/* At least so many bytes; what was in a smaller block is lost. */
int32_t tec_take(tec_net *net, block *b, size_t bytes, const char *what) {
  if (gpu_of(net)) return gpu_of(net)->take(net, b, bytes);
  if (tec_grow(b, bytes)) return TEC_OK;
  return tec_fail(net->error, TEC_OUT_OF_MEMORY, "there is no memory for %s: %zu bytes", what, bytes);
}

void tec_give(tec_net *net, block *b) {
  if (gpu_of(net)) {
    gpu_of(net)->give(net, b);
    return;
  }
  free(b->data);
  b->data = NULL;
  b->bytes = 0;
}

int32_t tec_move(tec_net *net, void *to, const void *from, size_t bytes) {
  if (gpu_of(net)) return gpu_of(net)->copy(net, to, from, bytes, TEC_WITHIN);
  memmove(to, from, bytes);
  return TEC_OK;
}

int32_t tec_clear(tec_net *net, void *at, size_t bytes) {
  if (gpu_of(net)) return gpu_of(net)->zero(net, at, bytes);
  memset(at, 0, bytes);
  return TEC_OK;
}

static int32_t host_room(tec_net *net, size_t bytes) {
  if (tec_grow(&net->host, bytes)) return TEC_OK;
  return tec_fail(net->error, TEC_OUT_OF_MEMORY, "there is no memory for a copy: %zu bytes", bytes);
}

/* Bytes for the host to look at, once what makes them is done. */
int32_t tec_read(tec_net *net, const void *at, size_t bytes, const void **host) {
  *host = at;
  if (!gpu_of(net)) return TEC_OK;
  int32_t status = host_room(net, bytes);
  if (!status) status = gpu_of(net)->copy(net, net->host.data, at, bytes, TEC_TO_HOST);
  if (!status) status = gpu_of(net)->wait(net);
  *host = net->host.data;
  return status;
}

int tec_is_on_device(const tec_net *net, const DLTensor *t) {
  return net->gpu && (int32_t)t->device.device_type == net->device_type && t->device.device_id == net->ordinal;
}

static size_t bytes_of(const DLTensor *t) { return (size_t)(tec_elements(t) * (t->dtype.bits / 8)); }

/* A tensor's elements, compact, to where the net computes. */
int32_t tec_read_tensor(tec_net *net, void *to, const DLTensor *t) {
  const tec_gpu_api *gpu = gpu_of(net);
  char *data = (char *)t->data + t->byte_offset;
  if (!gpu) {
    tec_copy_strided(to, t, 0);
    return TEC_OK;
  }
  if (tec_is_on_device(net, t)) return gpu->copy(net, to, data, bytes_of(t), TEC_WITHIN);
  net->has_waited = 0;
  if (tec_is_compact(t)) return gpu->copy(net, to, data, bytes_of(t), TEC_TO_DEVICE);
  int32_t status = host_room(net, bytes_of(t));
  if (status) return status;
  tec_copy_strided(net->host.data, t, 0);
  status = gpu->copy(net, to, net->host.data, bytes_of(t), TEC_TO_DEVICE);
  return status ? status : gpu->wait(net); /* the next one takes the same memory */
}

/* What the net made, to a tensor. */
int32_t tec_write_tensor(tec_net *net, const void *from, const DLTensor *t) {
  const tec_gpu_api *gpu = gpu_of(net);
  char *data = (char *)t->data + t->byte_offset;
  if (!gpu) {
    tec_copy_strided((char *)(uintptr_t)from, t, 1);
    return TEC_OK;
  }
  if (tec_is_on_device(net, t)) return gpu->copy(net, data, from, bytes_of(t), TEC_WITHIN);
  net->has_waited = 0;
  if (tec_is_compact(t)) return gpu->copy(net, data, from, bytes_of(t), TEC_TO_HOST);
  const void *host;
  int32_t status = tec_read(net, from, bytes_of(t), &host);
  if (!status) tec_copy_strided((char *)(uintptr_t)host, t, 1);
  return status;
}
