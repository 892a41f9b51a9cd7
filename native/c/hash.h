/* DPDK's hash table: see hash.c. */
#include <stdint.h>

struct rte_hash;

struct rte_hash *native_hash_new(uint32_t entries, uint32_t key_len);
