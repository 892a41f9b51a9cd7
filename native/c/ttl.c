/* Decrements the time to live or hop limit of untagged frames and frames with one VLAN tag. */
#include "forward.h"

enum { MALFORMED_ETHERNET, MALFORMED_IP, TTL_EXPIRED };

#define ETHER_IPV4 RTE_BE16(0x0800)
#define ETHER_IPV6 RTE_BE16(0x86dd)
#define ETHER_VLAN RTE_BE16(0x8100)
#define ETHER_QINQ RTE_BE16(0x88a8)

static __rte_always_inline uint16_t be16(const uint8_t *b)
{
	uint16_t v;
	memcpy(&v, b, 2);
	return v;
}

/* Returns the drop reason, or -1. */
static __rte_always_inline int v4(uint8_t *ip, uint32_t len)
{
	if (unlikely(len < 20 || (uint8_t)(ip[0] - 0x45) > 0x0a))
		return MALFORMED_IP;
	uint32_t ihl = (ip[0] & 15) * 4u, total = rte_be_to_cpu_16(be16(ip + 2));
	if (unlikely(total < ihl || total > len))
		return MALFORMED_IP;
	if (unlikely(ip[8] <= 1))
		return TTL_EXPIRED;
	ip[8]--;
	uint32_t sum = be16(ip + 10) + RTE_BE16(0x0100);
	sum += sum >= 0xffff;
	uint16_t low = sum;
	memcpy(ip + 10, &low, 2);
	return -1;
}

/* Extension headers are walked, as the length of the header includes them. */
static __rte_noinline int v6_extensions(const uint8_t *ip, uint32_t len)
{
	uint32_t at = 40, end = 40 + rte_be_to_cpu_16(be16(ip + 4));
	uint8_t next = ip[6];
	for (int i = 0; i < 16; i++) {
		uint32_t size;
		switch (next) {
		case 0: case 43: case 60: case 135:
			if (end - at < 8)
				return MALFORMED_IP;
			size = (ip[at + 1] + 1u) * 8;
			break;
		case 44:
			size = 8;
			break;
		case 51:
			if (end - at < 8)
				return MALFORMED_IP;
			size = (ip[at + 1] + 2u) * 4;
			break;
		default:
			return -1;
		}
		if (end - at < size)
			return MALFORMED_IP;
		int last = next == 44 && (be16(ip + at + 2) & RTE_BE16(0xfff8)) != 0;
		next = ip[at];
		at += size;
		if (last)
			return -1;
	}
	return MALFORMED_IP;
}

static __rte_always_inline int v6(uint8_t *ip, uint32_t len)
{
	if (unlikely(len < 40 || ip[0] >> 4 != 6 || 40u + rte_be_to_cpu_16(be16(ip + 4)) > len))
		return MALFORMED_IP;
	if (ip[6] != 6 && ip[6] != 17 && ip[6] != 58) {
		int bad = v6_extensions(ip, len);
		if (bad >= 0)
			return bad;
	}
	if (unlikely(ip[7] <= 1))
		return TTL_EXPIRED;
	ip[7]--;
	return -1;
}

static __rte_noinline int tagged(uint8_t *d, uint32_t len)
{
	if (len < 18)
		return MALFORMED_ETHERNET;
	uint16_t type = be16(d + 16);
	return type == ETHER_IPV4 ? v4(d + 18, len - 18) : type == ETHER_IPV6 ? v6(d + 18, len - 18) : -1;
}

/* Returns the drop reason, or -1. */
static __rte_always_inline int age(struct rte_mbuf *m)
{
	uint8_t *d = rte_pktmbuf_mtod(m, uint8_t *);
	uint32_t len = m->data_len;
	if (unlikely(len < 14))
		return MALFORMED_ETHERNET;
	uint16_t type = be16(d + 12);
	if (likely(type == ETHER_IPV4))
		return v4(d + 14, len - 14);
	if (type == ETHER_IPV6)
		return v6(d + 14, len - 14);
	return type == ETHER_VLAN || type == ETHER_QINQ ? tagged(d, len) : -1;
}

/* Applies the function `times` times to each packet; fresh: the packets are not in the cache yet. */
static __rte_always_inline uint16_t chain(struct rte_mbuf **p, uint16_t n, struct counts *c, int times, int fresh)
{
	uint64_t drops = 0;
	if (fresh)
		prefetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		if (fresh)
			prefetch(p, i, n);
		int bad = -1;
		for (int k = 0; k < times && likely(bad < 0); k++)
			bad = age(p[i]);
		if (unlikely(bad >= 0)) {
			c->dropped[bad]++;
			drops |= 1ull << i;
		}
	}
	return likely(drops == 0) ? n : free_dropped(p, n, drops);
}

static __rte_always_inline uint16_t ttl(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	return chain(p, n, c, 1, 1);
}

NETWORK_FUNCTION(ttl, ttl)

/* Chains in one loop. */
#define FUSED(times)                                                                                                  \
	static __rte_always_inline uint16_t ttl##times(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state) \
	{                                                                                                             \
		return chain(p, n, c, times, 1);                                                                      \
	}                                                                                                             \
	NETWORK_FUNCTION(ttl##times, ttl##times)

FUSED(2)
FUSED(4)
FUSED(8)

static uint16_t ttl_first(struct rte_mbuf **p, uint16_t n, struct counts *c) { return chain(p, n, c, 1, 1); }
static uint16_t ttl_next(struct rte_mbuf **p, uint16_t n, struct counts *c) { return chain(p, n, c, 1, 0); }

/* Chains of calls, each for the burst that the previous one has left. */
static __rte_always_inline uint16_t ttl_composed(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	static uint16_t (*volatile first)(struct rte_mbuf **, uint16_t, struct counts *) = ttl_first;
	static uint16_t (*volatile next)(struct rte_mbuf **, uint16_t, struct counts *) = ttl_next;
	const uint32_t times = *(const uint32_t *)state;
	n = first(p, n, c);
	for (uint32_t k = 1; k < times && n != 0; k++)
		n = next(p, n, c);
	return n;
}

NETWORK_FUNCTION(ttl_composed, ttl_composed)
