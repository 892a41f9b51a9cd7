/* DPDK's own hash table, with keys of a flow and a number for each. */
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include "forward.h"

#define KEY 16

struct rte_hash *native_hash_new(uint32_t capacity)
{
	struct rte_hash_parameters parameters = {
		.name = "native_hash",
		/* the next power of two: half of its slots stay free, as in ours */
		.entries = capacity + capacity / 4,
		.key_len = KEY,
		.hash_func = rte_hash_crc,
		.hash_func_init_val = 0x9e3779b9,
		.socket_id = SOCKET_ID_ANY,
	};
	return rte_hash_create(&parameters);
}

void native_hash_free(struct rte_hash *h) { rte_hash_free(h); }

/* 0, or less when there is no room. */
int native_hash_add(struct rte_hash *h, const uint8_t *key, uint64_t value)
{
	return rte_hash_add_key_data(h, key, (void *)(uintptr_t)value);
}

/* Looks up n keys, bursts of 32; the sum of what they have. */
uint64_t native_hash_sum(const struct rte_hash *h, const uint8_t *keys, uint32_t n)
{
	uint64_t sum = 0;
	for (uint32_t from = 0; from < n; from += BURST) {
		const void *burst[BURST];
		void *data[BURST];
		uint64_t hits = 0;
		for (int i = 0; i < BURST; i++)
			burst[i] = keys + (size_t)(from + i) * KEY;
		rte_hash_lookup_bulk_data(h, burst, BURST, &hits, data);
		if (likely(hits == 0xffffffff)) {
			for (int i = 0; i < BURST; i++)
				sum += (uintptr_t)data[i];
			continue;
		}
		for (int i = 0; i < BURST; i++)
			if (hits >> i & 1)
				sum += (uintptr_t)data[i];
	}
	return sum;
}
