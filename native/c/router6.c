/* Forwards IPv6 packets to resolved neighbours: checks of RFC 8200 3 and RFC 4291 2.5, look-up in rte_fib6 (a trie, AVX-512 if
 * available), hop limit, MTU. */
/* rte_vect_set_max_simd_bitwidth */
#define ALLOW_EXPERIMENTAL_API
#include <rte_fib6.h>
#include <rte_vect.h>
#include "adjacency.h"

struct router6 {
	struct rte_fib6 *fib;
	const struct adjacency *adjacencies;
	uint64_t mac; /* in the first six bytes */
};

struct plain6 {
	uint8_t dst[6], src[6];
	uint16_t type;
	uint8_t version, class_flow[3];
	uint16_t payload;
	uint8_t next, hop_limit;
	uint8_t src_ip[16], dst_ip[16];
} __rte_packed;

/* Creates a router of n routes; returns NULL if rte_fib6 rejects them. */
struct router6 *native_router6_new(const uint8_t (*addresses)[16], const uint8_t *lengths, const uint32_t *values,
				   uint32_t n, const struct adjacency *adjacencies, const uint8_t mac[6])
{
	static int serial;
	char name[32];
	snprintf(name, sizeof(name), "native6-%d", serial++);
	struct rte_fib6_conf conf = {.type = RTE_FIB6_TRIE, .default_nh = 0, .max_routes = n + 16};
	/* 2 bytes allow at most 32,767 groups: too few for either table; more are allocated than used */
	conf.trie.nh_sz = RTE_FIB6_TRIE_4B;
	conf.trie.num_tbl8 = 1 << 18;
	struct router6 *r = calloc(1, sizeof(*r));
	r->fib = rte_fib6_create(name, SOCKET_ID_ANY, &conf);
	if (r->fib == NULL)
		return NULL;
	for (uint32_t i = 0; i < n; i++)
		if (rte_fib6_add(r->fib, addresses[i], lengths[i], values[i]) != 0)
			return NULL;
	rte_vect_set_max_simd_bitwidth(RTE_VECT_SIMD_512);
	if (rte_fib6_select_lookup(r->fib, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512) != 0)
		rte_fib6_select_lookup(r->fib, RTE_FIB6_LOOKUP_TRIE_SCALAR);
	r->adjacencies = adjacencies;
	memcpy(&r->mac, mac, 6);
	return r;
}

void native_router6_free(struct router6 *r)
{
	rte_fib6_free(r->fib);
	free(r);
}

/* Returns 1 if the address is neither multicast nor link-local nor unspecified nor loopback. */
static __rte_always_inline int usual(const uint8_t *src)
{
	/* the first byte of most sources is neither 00 nor fe nor ff */
	if (likely((uint8_t)(src[0] - 1) < 0xfe - 1))
		return 1;
	uint64_t high, low;
	memcpy(&high, src, 8);
	memcpy(&low, src + 8, 8);
	if (src[0] == 0)
		return high != 0 || __builtin_bswap64(low) > 1;
	return src[0] == 0xfe && src[1] >> 6 != 2;
}

static __rte_always_inline int is_plain(const struct plain6 *h, uint32_t len, uint64_t mac)
{
	if (unlikely(len < sizeof(*h)))
		return 0;
	uint64_t to;
	memcpy(&to, h->dst, 8);
	return h->type == RTE_BE16(0x86dd) && (to ^ mac) << 16 == 0 && (h->version & 0xf0) == 0x60 &&
	       __builtin_bswap16(h->payload) <= len - sizeof(*h) && h->hop_limit > 1 && usual(h->src_ip);
}

static __rte_always_inline uint16_t router6(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	const struct router6 *r = state;
	uint8_t dst[BURST][16] __rte_cache_aligned;
	uint64_t hops[BURST];
	uint64_t drops = 0;
	uint8_t first = 0, mixed = 0;
	prefetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		prefetch(p, i, n);
		const struct plain6 *h = rte_pktmbuf_mtod(p[i], const struct plain6 *);
		if (likely(is_plain(h, p[i]->data_len, r->mac))) {
			memcpy(dst[i], h->dst_ip, 16);
		} else {
			memset(dst[i], 0, 16);
			drops |= 1ull << i;
			c->dropped[NOT_PLAIN]++;
		}
	}
	rte_fib6_lookup_bulk(r->fib, dst, hops, n);
	const struct adjacency *adjacencies = r->adjacencies;
	for (uint16_t i = 0; i < n; i++) {
		if (unlikely(drops >> i & 1))
			continue;
		const struct adjacency *a = &adjacencies[hops[i]];
		uint64_t rest = a->second;
		if (unlikely((uint8_t)(rest >> 40) != 1 || p[i]->data_len - 14u > rest >> 48)) {
			drops |= 1ull << i;
			c->dropped[(uint8_t)(rest >> 40) != 1 ? NO_ROUTE : TOO_BIG]++;
			continue;
		}
		struct plain6 *h = rte_pktmbuf_mtod(p[i], struct plain6 *);
		h->hop_limit--;
		uint32_t low = rest;
		memcpy(h, &a->first, 8);
		memcpy((uint8_t *)h + 8, &low, 4);
		uint8_t output = rest >> 32;
		if (first == 0)
			first = output;
		mixed |= output ^ first;
	}
	/* this benchmark has one port; a burst for several ports would be sorted here */
	if (unlikely(mixed))
		abort();
	return likely(drops == 0) ? n : free_dropped(p, n, drops);
}

NETWORK_FUNCTION_ON(router6, router6, FRESH6)
