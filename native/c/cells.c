/* Updates cells of a 512 KiB array, chosen by the UDP source port. */
#include "forward.h"

enum { MALFORMED_ETHERNET, NOT_UDP, MALFORMED };

struct cells {
	uint32_t n;
	uint64_t *array; /* 65,536 cells */
};

static __rte_always_inline uint16_t be16(const uint8_t *b)
{
	uint16_t v;
	memcpy(&v, b, 2);
	return v;
}

static __rte_always_inline uint16_t cells(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	const struct cells *s = state;
	uint64_t *array = s->array;
	const uint32_t updates = s->n;
	uint64_t drops = 0;
	prefetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		prefetch(p, i, n);
		const uint8_t *d = rte_pktmbuf_mtod(p[i], uint8_t *);
		uint32_t len = p[i]->data_len;
		int bad = -1;
		if (unlikely(len < 14))
			bad = MALFORMED_ETHERNET;
		else if (unlikely(be16(d + 12) != RTE_BE16(0x0800)))
			bad = NOT_UDP;
		else if (unlikely(len < 34 || (uint8_t)(d[14] - 0x45) > 0x0a))
			bad = MALFORMED;
		else {
			uint32_t ihl = (d[14] & 15) * 4u, total = rte_be_to_cpu_16(be16(d + 16));
			if (unlikely(total < ihl || total > len - 14))
				bad = MALFORMED;
			else if (unlikely(d[23] != 17 || (be16(d + 20) & RTE_BE16(0x1fff)) != 0))
				bad = NOT_UDP;
			else if (unlikely(total - ihl < 8))
				bad = MALFORMED;
			else {
				const uint8_t *udp = d + 14 + ihl;
				uint32_t length = rte_be_to_cpu_16(be16(udp + 4));
				if (unlikely(length < 8 || length > total - ihl))
					bad = MALFORMED;
				else {
					uint16_t cell = rte_be_to_cpu_16(be16(udp));
					for (uint32_t k = 0; k < updates; k++) {
						cell = cell * 25173 + 13849;
						array[cell]++;
					}
				}
			}
		}
		if (unlikely(bad >= 0)) {
			c->dropped[bad]++;
			drops |= 1ull << i;
		}
	}
	return likely(drops == 0) ? n : free_dropped(p, n, drops);
}

NETWORK_FUNCTION(cells, cells)
