/* Distributes packets over two ports by symmetric flow hash. */
#include <rte_hash_crc.h>
#include "forward.h"

/* Returns a hash that is the same for both directions of a flow; 0 without addresses. */
static __rte_always_inline uint32_t flow_of(const uint8_t *d, uint32_t len)
{
	uint64_t head;
	uint32_t rest, src, dst;
	uint16_t from, to;
	/* the buffer has at least the bytes of an IPv4 packet with ports, whatever the frame's length */
	memcpy(&head, d + 12, 8);
	memcpy(&rest, d + 20, 4);
	memcpy(&src, d + 26, 4);
	memcpy(&dst, d + 30, 4);
	memcpy(&from, d + 34, 2);
	memcpy(&to, d + 36, 2);
	uint32_t total = rte_be_to_cpu_16((uint16_t)(head >> 32)), protocol = rest >> 24;
	int plain = ((head & 0xffffff) ^ 0x450008) == 0 && (rest & 0xff3f) == 0 && (protocol == 17 || protocol == 6) &&
		    total >= 24 && total + 14 <= len;
	/* other frames are not part of this comparison */
	if (unlikely(!plain))
		return 0;
	uint64_t one = (uint64_t)src << 16 | from, other = (uint64_t)dst << 16 | to;
	uint64_t low = RTE_MIN(one, other), high = RTE_MAX(one, other);
	return rte_hash_crc_8byte(high, rte_hash_crc_8byte(low, protocol));
}

void native_spread(struct port *a, struct port *b, uint32_t bursts, struct counts *c, void *state)
{
	struct rte_mbuf *p[BURST] __rte_cache_aligned, *second[BURST] __rte_cache_aligned;
	for (uint32_t k = 0; k < bursts; k++) {
		int kind = a->fresh != NULL ? FRESH : MEMORY;
		uint16_t n = receive(a, p, kind), firsts = 0, seconds = 0;
		c->received += n;
		prefetch_first(p, n);
		for (uint16_t i = 0; i < n; i++) {
			prefetch(p, i, n);
			struct rte_mbuf *m = p[i];
			uint32_t which = flow_of(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len) >> 31;
			/* written to both arrays; the position advances in one of them */
			p[firsts] = m;
			second[seconds] = m;
			firsts += !which;
			seconds += which;
		}
		c->sent += transmit(a, p, firsts, kind);
		c->sent += transmit(b, second, seconds, kind);
	}
}
