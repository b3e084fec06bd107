/* The weights: in the library or in a file beside it, verified by a sum of mixed words. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime.h"

static uint64_t mixed(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 29;
  return x;
}

/* The sum over 64-bit words of mixed(word ^ place * odd number), and the number of bytes; tables.py computes the same. */
uint64_t tec_hash(const uint8_t *data, size_t bytes) {
  uint64_t sum = bytes, place = 0;
  size_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    uint64_t word;
    memcpy(&word, data + at, 8);
    sum += mixed(word ^ place);
    place += 0x9e3779b97f4a7c15ULL;
  }
  if (at < bytes) {
    uint64_t word = 0;
    memcpy(&word, data + at, bytes - at);
    sum += mixed(word ^ place);
  }
  return sum;
}

/* The library's own file; "" where the system does not say. */
static const char *library_path(const tec_model *m) {
  Dl_info info;
  return dladdr((const void *)m, &info) && info.dli_fname ? info.dli_fname : "";
}

/* A file that was cut off is still mapped as a whole, and reading what is not there ends the process: so its size is looked at first. */
int32_t tec_check_file(tec_net *net) {
  const tec_model *m = net->model;
  const char *path = library_path(m);
  int file = m->file_bytes ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return TEC_OK;
  int64_t bytes = lseek(file, 0, SEEK_END);
  close(file);
  if (bytes >= 0 && bytes < m->file_bytes)
    return tec_fail(net->error, TEC_DAMAGED, "%s is cut off: it has %lld bytes of %lld", path, (long long)bytes, (long long)m->file_bytes);
  return TEC_OK;
}

static int32_t map_file(tec_net *net, const char *path) {
  const tec_model *m = net->model;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return tec_fail(net->error, TEC_INVALID, "the file of weights %s cannot be read: %s", path, strerror(errno));
  int64_t bytes = lseek(file, 0, SEEK_END);
  int32_t status = TEC_OK;
  if (bytes != m->weights_bytes)
    status = tec_fail(net->error, TEC_DAMAGED, "the file of weights %s has %lld bytes, the network's has %lld", path, (long long)bytes, (long long)m->weights_bytes);
  else if (m->weights_bytes) {
    void *at = mmap(NULL, (size_t)m->weights_bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (at == MAP_FAILED)
      status = tec_fail(net->error, TEC_OUT_OF_MEMORY, "%s cannot be mapped: %s", path, strerror(errno));
    else {
      net->mapped = at;
      net->mapped_bytes = (size_t)m->weights_bytes;
      net->weights = at;
    }
  }
  close(file);
  return status;
}

static int32_t beside(tec_net *net, const tec_options *options) {
  const tec_model *m = net->model;
  if (options && options->weights) return map_file(net, options->weights);
  char path[4096];
  const char *own = library_path(m), *slash = strrchr(own, '/');
  int n = snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - own) : 0, own, m->weights_file);
  if (n < 0 || (size_t)n >= sizeof path) return tec_fail(net->error, TEC_INVALID, "the path of the weights is too long");
  return map_file(net, path);
}

int32_t tec_find_weights(tec_net *net, const tec_options *options) {
  const tec_model *m = net->model;
  int32_t status = TEC_OK;
  if ((int64_t)tec_hash(m->tables, (size_t)m->tables_bytes) != m->tables_hash)
    return tec_fail(net->error, TEC_DAMAGED, "the library is damaged: the checksum of the network's plan is wrong");
  net->weights = m->weights;
  if (m->weights_file && (status = beside(net, options))) return status;
  if (options && options->skip_checksum) return TEC_OK;
  if ((int64_t)tec_hash(net->weights, (size_t)m->weights_bytes) != m->weights_hash)
    return tec_fail(net->error, TEC_DAMAGED, "the weights are damaged: their checksum is wrong");
  return TEC_OK;
}
