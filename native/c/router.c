/* Forwards IPv4 packets to resolved neighbours: checks of RFC 1812 5.2.2, look-up in rte_fib (DIR-24-8, AVX-512 if available) or,
 * for routes to single addresses, in rte_hash, TTL, MTU. */
/* rte_vect_set_max_simd_bitwidth */
#define ALLOW_EXPERIMENTAL_API
#include <rte_fib.h>
#include <rte_hash.h>
#include <rte_vect.h>
#include "adjacency.h"
#include "hash.h"

struct router {
	struct rte_fib *fib;
	struct rte_hash *hash;
	const struct adjacency *adjacencies;
	uint8_t mac[6];
};

struct plain {
	uint8_t dst[6], src[6];
	uint16_t type;
	uint8_t version_ihl, tos;
	uint16_t total, id, fragment;
	uint8_t ttl, protocol;
	uint16_t checksum;
	uint32_t src_ip, dst_ip;
} __rte_packed;

/* Adds routes to rte_fib; returns 0 if one is rejected. */
static int add_prefixes(struct router *r, const uint32_t *addresses, const uint8_t *lengths, const uint32_t *values, uint32_t n)
{
	static int serial;
	char name[32];
	snprintf(name, sizeof(name), "native%d", serial++);
	struct rte_fib_conf conf = {.type = RTE_FIB_DIR24_8, .default_nh = 0, .max_routes = n + 16};
	conf.dir24_8.nh_sz = RTE_FIB_DIR24_8_2B;
	conf.dir24_8.num_tbl8 = 8192;
	r->fib = rte_fib_create(name, SOCKET_ID_ANY, &conf);
	if (r->fib == NULL)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		if (rte_fib_add(r->fib, addresses[i], lengths[i], values[i]) != 0)
			return 0;
	rte_vect_set_max_simd_bitwidth(RTE_VECT_SIMD_512);
	if (rte_fib_select_lookup(r->fib, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512) != 0)
		rte_fib_select_lookup(r->fib, RTE_FIB_LOOKUP_DIR24_8_SCALAR_INLINE);
	return 1;
}

/* Adds routes to single addresses to rte_hash; returns 0 if one is rejected. */
static int add_hosts(struct router *r, const uint32_t *addresses, const uint8_t *lengths, const uint32_t *values, uint32_t n)
{
	r->hash = native_hash_new(n + n / 4, sizeof(uint32_t));
	if (r->hash == NULL)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		if (lengths[i] != 32 || rte_hash_add_key_data(r->hash, &addresses[i], (void *)(uintptr_t)values[i]) != 0)
			return 0;
	return 1;
}

/* Creates a router of n routes (addresses in host byte order), with exact to single addresses only; returns NULL if DPDK rejects
 * them. */
struct router *native_router_new(const uint32_t *addresses, const uint8_t *lengths, const uint32_t *values, uint32_t n,
				 const struct adjacency *adjacencies, const uint8_t mac[6], int exact)
{
	struct router *r = calloc(1, sizeof(*r));
	if (!(exact ? add_hosts : add_prefixes)(r, addresses, lengths, values, n))
		return NULL;
	r->adjacencies = adjacencies;
	memcpy(r->mac, mac, 6);
	return r;
}

void native_router_free(struct router *r)
{
	rte_fib_free(r->fib);
	rte_hash_free(r->hash);
	free(r);
}

static __rte_always_inline int sums_up(const struct plain *h)
{
	const uint8_t *b = &h->version_ihl;
	uint64_t sum = 0;
	for (int i = 0; i < 5; i++) {
		uint32_t word;
		memcpy(&word, b + 4 * i, 4);
		sum += word;
	}
	/* such a sum folds to 0xffff, as 1 << 16 is 1 modulo 0xffff; it is not 0 */
	return sum % 0xffff == 0;
}

static __rte_always_inline int same_mac(const uint8_t *a, const uint8_t *b)
{
	uint32_t x, y;
	uint16_t v, w;
	memcpy(&x, a, 4);
	memcpy(&y, b, 4);
	memcpy(&v, a + 4, 2);
	memcpy(&w, b + 4, 2);
	return ((x ^ y) | (uint32_t)(v ^ w)) == 0;
}

static __rte_always_inline int is_plain(const struct plain *h, uint32_t len, const uint8_t *mac)
{
	if (unlikely(len < sizeof(*h)))
		return 0;
	uint32_t total = rte_be_to_cpu_16(h->total);
	uint8_t first = (uint8_t)h->src_ip;
	return h->type == RTE_BE16(0x0800) && same_mac(h->dst, mac) && h->version_ihl == 0x45 && total - 20 <= len - 34 &&
	       h->ttl > 1 && (uint8_t)(first - 1) < 0xdf && first != 127 && sums_up(h);
}

static __rte_always_inline void look_up_fib(const struct router *r, const uint32_t *dst, uint64_t *hops, uint16_t n)
{
	rte_fib_lookup_bulk(r->fib, (uint32_t *)(uintptr_t)dst, hops, n);
}

static __rte_always_inline void look_up_hash(const struct router *r, const uint32_t *dst, uint64_t *hops, uint16_t n)
{
	const void *keys[BURST];
	uint64_t hits = 0;
	for (uint16_t i = 0; i < n; i++)
		keys[i] = &dst[i];
	rte_hash_lookup_bulk_data(r->hash, keys, n, &hits, (void **)hops);
	if (likely(hits == UINT64_MAX >> (64 - n)))
		return;
	for (uint16_t i = 0; i < n; i++)
		hops[i] = hits >> i & 1 ? hops[i] : 0;
}

static __rte_always_inline uint16_t route(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state,
					  void (*look_up)(const struct router *, const uint32_t *, uint64_t *, uint16_t))
{
	const struct router *r = state;
	uint32_t dst[BURST];
	uint64_t hops[BURST];
	uint64_t drops = 0;
	uint8_t first = 0, mixed = 0;
	prefetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		prefetch(p, i, n);
		const struct plain *h = rte_pktmbuf_mtod(p[i], const struct plain *);
		if (likely(is_plain(h, p[i]->data_len, r->mac))) {
			dst[i] = rte_be_to_cpu_32(h->dst_ip);
		} else {
			dst[i] = 0;
			drops |= 1ull << i;
			c->dropped[NOT_PLAIN]++;
		}
	}
	look_up(r, dst, hops, n);
	for (uint16_t i = 0; i < n; i++) {
		if (unlikely(drops >> i & 1))
			continue;
		const struct adjacency *a = &r->adjacencies[hops[i]];
		uint64_t rest = a->second;
		if (unlikely((uint8_t)(rest >> 40) != 1 || p[i]->data_len - 14u > rest >> 48)) {
			drops |= 1ull << i;
			c->dropped[(uint8_t)(rest >> 40) != 1 ? NO_ROUTE : TOO_BIG]++;
			continue;
		}
		struct plain *h = rte_pktmbuf_mtod(p[i], struct plain *);
		h->ttl--;
		uint32_t sum = h->checksum + RTE_BE16(0x0100);
		sum += sum >= 0xffff;
		h->checksum = sum;
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

static __rte_always_inline uint16_t router(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	return route(p, n, c, state, look_up_fib);
}

static __rte_always_inline uint16_t router_exact(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	return route(p, n, c, state, look_up_hash);
}

NETWORK_FUNCTION(router, router)
NETWORK_FUNCTION(router_exact, router_exact)
