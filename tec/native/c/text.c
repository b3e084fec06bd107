/* Texts of errors. */
#include <stdio.h>
#include <string.h>

#include "runtime.h"

int32_t tec_fail(char *text, int32_t status, const char *format, ...) {
  if (text) {
    va_list list;
    va_start(list, format);
    vsnprintf(text, ERROR_BYTES, format, list);
    va_end(list);
  }
  return status;
}

void tec_shape_text(char *out, size_t room, const int64_t *shape, int64_t ndim) {
  size_t at = (size_t)snprintf(out, room, "(");
  for (int64_t d = 0; d < ndim && at + 24 < room; d++)
    at += (size_t)snprintf(out + at, room - at, d ? ", %lld" : "%lld", (long long)shape[d]);
  if (at + 2 < room) snprintf(out + at, room - at, ")");
}

void tec_type_text(char *out, size_t room, int64_t code, int64_t bits, int64_t lanes) {
  static const char *const names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  if (code == 6 && bits == 8)
    snprintf(out, room, "bool");
  else if (code >= 0 && code < 7)
    snprintf(out, room, "%s%lld", names[code], (long long)bits);
  else
    snprintf(out, room, "type %lld of %lld bits", (long long)code, (long long)bits);
  size_t at = strlen(out);
  if (lanes != 1 && at + 8 < room) snprintf(out + at, room - at, "x%lld", (long long)lanes);
}
