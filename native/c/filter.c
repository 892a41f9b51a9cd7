/* Filters that do next to nothing: number k drops frames whose byte k is 0xff. */
#include "forward.h"

enum { MALFORMED_ETHERNET, MARKED };

/* `times` filters, the first of them number k, one after the other on each packet; fresh: nobody has touched the packets. */
static __rte_always_inline uint16_t filters(struct rte_mbuf **p, uint16_t n, struct counts *c, int k, int times, int fresh)
{
	uint32_t gone = 0;
	if (fresh)
		fetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		if (fresh)
			fetch(p, i, n);
		const uint8_t *d = rte_pktmbuf_mtod(p[i], const uint8_t *);
		int bad = -1;
		if (unlikely(p[i]->data_len < RTE_ETHER_HDR_LEN))
			bad = MALFORMED_ETHERNET;
		for (int at = k; at < k + times && likely(bad < 0); at++)
			if (unlikely(d[at] == 0xff))
				bad = MARKED;
		if (unlikely(bad >= 0)) {
			c->dropped[bad]++;
			gone |= 1u << i;
		}
	}
	return likely(gone == 0) ? n : discard(p, n, gone);
}

/* So many of them in one loop. */
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

/* So many of them, each called for the burst that the one before has left. */
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
