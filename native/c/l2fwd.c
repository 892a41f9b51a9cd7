/* Swaps the MAC addresses with one shuffle. */
#include "forward.h"

enum { MALFORMED_ETHERNET };

static __rte_always_inline uint16_t l2fwd(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	const __m128i swap = _mm_set_epi8(15, 14, 13, 12, 5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 7, 6);
	uint64_t drops = 0;
	prefetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		prefetch(p, i, n);
		if (unlikely(p[i]->data_len < RTE_ETHER_HDR_LEN)) {
			c->dropped[MALFORMED_ETHERNET]++;
			drops |= 1ull << i;
			continue;
		}
		/* the buffer has at least sixteen bytes, whatever the frame's length */
		__m128i *h = rte_pktmbuf_mtod(p[i], __m128i *);
		_mm_storeu_si128(h, _mm_shuffle_epi8(_mm_loadu_si128(h), swap));
	}
	return likely(drops == 0) ? n : free_dropped(p, n, drops);
}

NETWORK_FUNCTION(l2fwd, l2fwd)
