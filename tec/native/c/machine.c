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

enum { MOST_LEAVES = 8 };

/* `cpuid` leaves a virtual machine, which takes a microsecond or more: what it said is kept. */
static struct {
  uint64_t leaf;               /* leaf << 32 | subleaf, plus 1; 0: free */
  uint32_t r[4];
} leaves[MOST_LEAVES];
static uint64_t states_plus_1; /* of XCR0 */

static int read_leaf(uint64_t leaf, uint32_t *r) {
  for (int k = 0; k < MOST_LEAVES; k++)
    if (__atomic_load_n(&leaves[k].leaf, __ATOMIC_ACQUIRE) == leaf + 1) {
      for (int j = 0; j < 4; j++) r[j] = __atomic_load_n(&leaves[k].r[j], __ATOMIC_RELAXED);
      return 1;
    }
  if (!__get_cpuid_count((uint32_t)(leaf >> 32), (uint32_t)leaf, &r[0], &r[1], &r[2], &r[3])) r[0] = r[1] = r[2] = r[3] = 0;
  return 0;
}

static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;

static void keep_leaf(uint64_t leaf, const uint32_t *r) {
  pthread_mutex_lock(&keeping);
  for (int k = 0; k < MOST_LEAVES; k++) {
    if (leaves[k].leaf == leaf + 1) break;
    if (leaves[k].leaf) continue;
    for (int j = 0; j < 4; j++) __atomic_store_n(&leaves[k].r[j], r[j], __ATOMIC_RELAXED);
    __atomic_store_n(&leaves[k].leaf, leaf + 1, __ATOMIC_RELEASE);
    break;
  }
  pthread_mutex_unlock(&keeping);
}

static void look(uint64_t leaf, uint32_t *r) {
  if (!read_leaf(leaf, r)) keep_leaf(leaf, r);
}

/* A word of `features` is leaf << 32 | subleaf << 16 | register << 8 | bit; the one after it the bits of XCR0 that it needs. */
static int has(int64_t word, int64_t states) {
  uint32_t r[4];
  look(((uint64_t)word >> 32) << 32 | (uint64_t)(word >> 16 & 0xFFFF), r);
  if (!(r[word >> 8 & 3] >> (word & 31) & 1)) return 0;
  if (!states) return 1;
  look((uint64_t)1 << 32, r);
  if (!(r[2] >> 27 & 1)) return 0;
  uint64_t saved = __atomic_load_n(&states_plus_1, __ATOMIC_RELAXED);
  if (!saved) __atomic_store_n(&states_plus_1, saved = extended_states() + 1, __ATOMIC_RELAXED);
  return ((saved - 1) & (uint64_t)states) == (uint64_t)states;
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
