/* DPDK's hash table, with keys of a fixed length and a number for each. */
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include "forward.h"
#include "hash.h"

/* Creates a table for at least this number of keys, rounded up to the next power of two; returns NULL without memory. */
struct rte_hash *native_hash_new(uint32_t entries, uint32_t key_len)
{
	static int serial;
	char name[32];
	snprintf(name, sizeof(name), "native_hash%d", serial++);
	struct rte_hash_parameters parameters = {
		.name = name,
		.entries = entries,
		.key_len = key_len,
		.hash_func = rte_hash_crc,
		.hash_func_init_val = 0x9e3779b9,
		.socket_id = SOCKET_ID_ANY,
	};
	return rte_hash_create(&parameters);
}

void native_hash_free(struct rte_hash *h) { rte_hash_free(h); }

/* Returns 0, or a negative number if the table is full. */
int native_hash_add(struct rte_hash *h, const uint8_t *key, uint64_t value)
{
	return rte_hash_add_key_data(h, key, (void *)(uintptr_t)value);
}

/* Looks up n keys in bursts, adds their values to *sum, and returns the number of keys found. */
static __rte_always_inline uint32_t look_up(const struct rte_hash *h, const uint8_t *keys, size_t key_len, uint32_t n, uint64_t *sum)
{
	uint32_t found = 0;
	for (uint32_t from = 0; from < n; from += BURST) {
		const void *burst[BURST];
		void *data[BURST];
		uint64_t hits = 0;
		uint32_t m = RTE_MIN(n - from, (uint32_t)BURST);
		for (uint32_t i = 0; i < m; i++)
			burst[i] = keys + (from + i) * key_len;
		rte_hash_lookup_bulk_data(h, burst, m, &hits, data);
		if (likely(hits == UINT64_MAX >> (64 - m))) {
			for (uint32_t i = 0; i < m; i++)
				*sum += (uintptr_t)data[i];
			found += m;
			continue;
		}
		for (uint32_t i = 0; i < m; i++)
			if (hits >> i & 1)
				*sum += (uintptr_t)data[i];
		found += __builtin_popcountll(hits);
	}
	return found;
}

/* Returns the sum of the values of keys of sixteen bytes. */
uint64_t native_hash_sum(const struct rte_hash *h, const uint8_t *keys, uint32_t n)
{
	uint64_t sum = 0;
	look_up(h, keys, 16, n, &sum);
	return sum;
}

/* Returns the number of keys of eight bytes that are found, and the sum of their values. */
uint32_t native_hash_found(const struct rte_hash *h, const uint8_t *keys, uint32_t n, uint64_t *sum)
{
	return look_up(h, keys, 8, n, sum);
}
