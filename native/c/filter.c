/* Minimal filters: filter k drops frames whose byte k is 0xff. */
#include "forward.h"

enum { MALFORMED_ETHERNET, MARKED };

/* Applies `times` filters from number k on to each packet; fresh: the packets are not in the cache yet. */
static __rte_always_inline uint16_t filters(struct rte_mbuf **p, uint16_t n, struct counts *c, int k, int times, int fresh)
{
	uint64_t drops = 0;
	if (fresh)
		prefetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		if (fresh)
			prefetch(p, i, n);
		const uint8_t *d = rte_pktmbuf_mtod(p[i], const uint8_t *);
		int bad = -1;
		if (unlikely(p[i]->data_len < RTE_ETHER_HDR_LEN))
			bad = MALFORMED_ETHERNET;
		for (int at = k; at < k + times && likely(bad < 0); at++)
			if (unlikely(d[at] == 0xff))
				bad = MARKED;
		if (unlikely(bad >= 0)) {
			c->dropped[bad]++;
			drops |= 1ull << i;
		}
	}
	return likely(drops == 0) ? n : free_dropped(p, n, drops);
}

/* Chains in one loop. */
#define FUSED(times)                                                                                                     \
	static __rte_always_inline uint16_t filter##times(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state) \
	{                                                                                                                \
		return filters(p, n, c, 0, times, 1);                                                                    \
	}                                                                                                                \
	NETWORK_FUNCTION(filter##times, filter##times)

FUSED(1)
FUSED(2)
FUSED(4)
FUSED(8)

#define ONE(k)                                                                                   \
	static uint16_t filter_number##k(struct rte_mbuf **p, uint16_t n, struct counts *c)      \
	{                                                                                        \
		return filters(p, n, c, k, 1, k == 0);                                           \
	}

ONE(0)
ONE(1)
ONE(2)
ONE(3)
ONE(4)
ONE(5)
ONE(6)
ONE(7)

/* Chains of calls, each for the burst that the previous one has left. */
static __rte_always_inline uint16_t filter_composed(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	typedef uint16_t (*filter_fn)(struct rte_mbuf **, uint16_t, struct counts *);
	static filter_fn volatile all[] = {filter_number0, filter_number1, filter_number2, filter_number3,
					   filter_number4, filter_number5, filter_number6, filter_number7};
	const uint32_t times = *(const uint32_t *)state;
	for (uint32_t k = 0; k < times && n != 0; k++)
		n = all[k](p, n, c);
	return n;
}

NETWORK_FUNCTION(filter_composed, filter_composed)
