/* Whether this machine's processor has what the code was compiled for. */
#include <string.h>

#include "runtime.h"

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t extended_states(void) { /* XCR0: the registers that the system saves */
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

/* A word of `features` is leaf << 32 | subleaf << 16 | register << 8 | bit; the one after it the bits of XCR0 that it needs. */
static int has(int64_t word, int64_t states) {
  uint32_t r[4];
  uint32_t leaf = (uint32_t)((uint64_t)word >> 32);
  if (!__get_cpuid_count(leaf, (uint32_t)(word >> 16 & 0xFFFF), &r[0], &r[1], &r[2], &r[3])) return 0;
  if (!(r[word >> 8 & 3] >> (word & 31) & 1)) return 0;
  if (!states) return 1;
  uint32_t s[4];
  if (!__get_cpuid(1, &s[0], &s[1], &s[2], &s[3]) || !(s[2] >> 27 & 1)) return 0;
  return (extended_states() & (uint64_t)states) == (uint64_t)states;
}
#else
static int has(int64_t word, int64_t states) {
  (void)word;
  (void)states;
  return 1;
}
#endif

int32_t tec_check_machine(char *error, const char *target, const int64_t *features, int64_t n, const char *const *names) {
  for (int64_t k = 0; k < n; k++)
    if (!has(features[2 * k], features[2 * k + 1]))
      return tec_fail(error, TEC_UNSUPPORTED, "the code was compiled for %s, and this processor has no %s; compile with -mcpu= of this machine", target, names[k]);
  return TEC_OK;
}
