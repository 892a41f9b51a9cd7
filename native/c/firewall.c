/* Stateless firewall: the first matching rule of a packet applies and is counted. Few rules are compared with
 * sixteen packets at a time by AVX-512, or eight by AVX2; many rules by rte_acl. */
/* rte_vect_set_max_simd_bitwidth */
#define ALLOW_EXPERIMENTAL_API
#include <rte_acl.h>
#include <rte_vect.h>
#include "forward.h"

enum { REFUSED, REFUSED_BY_DEFAULT, MALFORMED_IP };

/* 16-byte key: bytes 22 to 37 of a frame, with the checksum overwritten. */
struct key {
	uint8_t ttl, protocol;
	uint8_t flags; /* of TCP */
	uint8_t kind;
	uint32_t src, dst; /* network byte order */
	uint16_t sport, dport; /* network byte order; with KIND_ICMP type and code */
};
#define KIND_NO_PORTS 1 /* ports are not known */
#define KIND_ICMP 2 /* type and code are known */
#define KIND_FRAGMENT 4
#define KIND_LATER 8

/* A compiled rule, as firewall.rs creates it. */
struct rule {
	uint32_t meta, meta_mask; /* first four bytes of the key */
	uint32_t src, src_mask, dst, dst_mask; /* network byte order */
	uint32_t first, span; /* ports in host byte order, the source port in the low half: first port, and last minus first */
	uint32_t drop; /* all ones or none */
	uint8_t src_len, dst_len; /* for rte_acl, as is the protocol in meta */
	uint16_t reserved;
};

struct firewall {
	uint32_t n;
	uint64_t drop_by_default;
	const struct rule *rules;
	uint64_t *counts; /* 0: default; 1 + rule */
	struct rte_acl_ctx *acl;
	uint64_t spare[8]; /* counters without meaning for packets that no rule matches: no increment waits for the previous one */
};

RTE_ACL_RULE_DEF(five, 5);

static struct rte_acl_ctx *acl_of(const struct rule *rules, uint32_t n)
{
	static int serial;
	/* from the protocol on, 14 + 9 bytes into the frame */
	static const struct rte_acl_field_def defs[5] = {
		{.type = RTE_ACL_FIELD_TYPE_BITMASK, .size = 1, .field_index = 0, .input_index = 0, .offset = 0},
		{.type = RTE_ACL_FIELD_TYPE_MASK, .size = 4, .field_index = 1, .input_index = 1, .offset = 3},
		{.type = RTE_ACL_FIELD_TYPE_MASK, .size = 4, .field_index = 2, .input_index = 2, .offset = 7},
		{.type = RTE_ACL_FIELD_TYPE_RANGE, .size = 2, .field_index = 3, .input_index = 3, .offset = 11},
		{.type = RTE_ACL_FIELD_TYPE_RANGE, .size = 2, .field_index = 4, .input_index = 3, .offset = 13},
	};
	char name[32];
	snprintf(name, sizeof(name), "native%d", serial++);
	struct rte_acl_param param = {.name = name, .socket_id = SOCKET_ID_ANY, .rule_size = RTE_ACL_RULE_SZ(5), .max_rule_num = n};
	struct rte_acl_ctx *acl = rte_acl_create(&param);
	if (acl == NULL)
		return NULL;
	for (uint32_t i = 0; i < n; i++) {
		const struct rule *r = &rules[i];
		struct five five = {.data = {.category_mask = 1, .priority = n - i, .userdata = i + 1}};
		five.field[0].value.u8 = r->meta >> 8;
		five.field[0].mask_range.u8 = r->meta_mask >> 8;
		five.field[1].value.u32 = rte_be_to_cpu_32(r->src);
		five.field[1].mask_range.u32 = r->src_len;
		five.field[2].value.u32 = rte_be_to_cpu_32(r->dst);
		five.field[2].mask_range.u32 = r->dst_len;
		five.field[3].value.u16 = r->first;
		five.field[3].mask_range.u16 = r->first + r->span;
		five.field[4].value.u16 = r->first >> 16;
		five.field[4].mask_range.u16 = (r->first >> 16) + (r->span >> 16);
		if (rte_acl_add_rules(acl, (const struct rte_acl_rule *)&five, 1) != 0)
			return NULL;
	}
	struct rte_acl_config config = {.num_categories = 1, .num_fields = 5};
	memcpy(config.defs, defs, sizeof(defs));
	if (rte_acl_build(acl, &config) != 0)
		return NULL;
	static const enum rte_acl_classify_alg best[] = {RTE_ACL_CLASSIFY_AVX512X32, RTE_ACL_CLASSIFY_AVX512X16,
							 RTE_ACL_CLASSIFY_AVX2, RTE_ACL_CLASSIFY_SSE};
	rte_vect_set_max_simd_bitwidth(RTE_VECT_SIMD_512);
	for (unsigned int i = 0; i < RTE_DIM(best); i++)
		if (rte_acl_set_ctx_classify(acl, best[i]) == 0)
			break;
	return acl;
}

/* Creates a firewall of n rules, which must outlive it; returns NULL if rte_acl rejects them. acl: use rte_acl, for
 * rules without TCP flags, ICMP types and fragments. */
struct firewall *native_firewall_new(const struct rule *rules, uint32_t n, int drop_by_default, int acl)
{
	struct firewall *f = aligned_alloc(64, RTE_ALIGN(sizeof(*f), 64));
	memset(f, 0, sizeof(*f));
	f->n = n;
	f->rules = rules;
	f->drop_by_default = drop_by_default ? UINT64_MAX : 0;
	f->counts = calloc(n + 1, sizeof(*f->counts));
	if (acl) {
		f->acl = acl_of(rules, n);
		if (f->acl == NULL)
			return NULL;
	}
	return f;
}

void native_firewall_free(struct firewall *f)
{
	rte_acl_free(f->acl);
	free(f->counts);
	free(f);
}

uint64_t *native_firewall_counts(struct firewall *f)
{
	return f->counts;
}

static __rte_always_inline uint16_t be16(const uint8_t *b)
{
	uint16_t v;
	memcpy(&v, b, 2);
	return rte_be_to_cpu_16(v);
}

/* Returns 1 + the rule that a key matches, or 0. */
static uint32_t scan(const struct firewall *f, const struct key *k)
{
	uint32_t meta;
	memcpy(&meta, k, 4);
	uint16_t sport = rte_be_to_cpu_16(k->sport), dport = rte_be_to_cpu_16(k->dport);
	for (uint32_t i = 0; i < f->n; i++) {
		const struct rule *r = &f->rules[i];
		if (((meta ^ r->meta) & r->meta_mask) == 0 && ((k->src ^ r->src) & r->src_mask) == 0 &&
		    ((k->dst ^ r->dst) & r->dst_mask) == 0 && (uint16_t)(sport - r->first) <= (uint16_t)r->span &&
		    (uint16_t)(dport - (r->first >> 16)) <= r->span >> 16)
			return i + 1;
	}
	return 0;
}

/* Counts a packet and returns the drop reason, or -1. */
static int decide(struct firewall *f, uint32_t rule)
{
	f->counts[rule]++;
	if (rule == 0)
		return f->drop_by_default ? REFUSED_BY_DEFAULT : -1;
	return f->rules[rule - 1].drop ? REFUSED : -1;
}

/* Processes packets that are not plain: VLAN tags, options, fragments, other protocols, IPv6, which matches no rule, and non-IP
 * frames, which pass. */
static __rte_noinline int process_not_plain(struct firewall *f, const struct rte_mbuf *m)
{
	const uint8_t *d = rte_pktmbuf_mtod(m, const uint8_t *);
	uint32_t len = m->data_len, at = 14;
	if (len < at)
		return MALFORMED_IP;
	uint16_t type = be16(d + 12);
	for (int tags = 0; tags < 4 && (type == 0x8100 || type == 0x88a8); tags++) {
		if (len < at + 4)
			return MALFORMED_IP;
		type = be16(d + at + 2);
		at += 4;
	}
	const uint8_t *ip = d + at;
	len -= at;
	if (type == 0x86dd) {
		if (len < 40 || ip[0] >> 4 != 6 || 40u + be16(ip + 4) > len)
			return MALFORMED_IP;
		return decide(f, 0);
	}
	if (type != 0x0800)
		return -1;
	if (len < 20 || (uint8_t)(ip[0] - 0x45) > 0x0a)
		return MALFORMED_IP;
	uint32_t ihl = (ip[0] & 15) * 4u, total = be16(ip + 2), offset = be16(ip + 6) & 0x1fff;
	if (total < ihl || total > len)
		return MALFORMED_IP;
	struct key k = {.protocol = ip[9], .kind = KIND_NO_PORTS};
	if (be16(ip + 6) & 0x3fff)
		k.kind |= KIND_FRAGMENT | (offset ? KIND_LATER : 0);
	/* RFC 1858 */
	if (k.protocol == 6 && (k.kind & KIND_FRAGMENT) && (offset ? offset * 8 < 16 : total - ihl < 16))
		return MALFORMED_IP;
	memcpy(&k.src, ip + 12, 8);
	const uint8_t *upper = ip + ihl;
	uint32_t rest = offset ? 0 : total - ihl;
	if (k.protocol == 6 && rest >= 14)
		k.flags = upper[13];
	if ((k.protocol == 6 && rest >= 14) || (k.protocol == 17 && rest >= 4)) {
		memcpy(&k.sport, upper, 4);
		k.kind &= ~KIND_NO_PORTS;
	} else if (k.protocol == 1 && rest >= 2) {
		k.sport = rte_cpu_to_be_16(upper[0]);
		k.dport = rte_cpu_to_be_16(upper[1]);
		k.kind |= KIND_ICMP;
	}
	return decide(f, scan(f, &k));
}

/* Returns 1 if a packet is plain UDP. */
static __rte_always_inline int is_plain(const uint8_t *d, uint32_t len)
{
	uint64_t a;
	uint32_t b;
	memcpy(&a, d + 12, 8);
	memcpy(&b, d + 20, 4);
	uint32_t total = rte_be_to_cpu_16((uint16_t)(a >> 32));
	/* EtherType and version; flags and fragment offset, protocol. Buffers are longer than what is read of short frames. */
	return likely((((a & 0xffffff) ^ 0x450008) | ((b & 0xff00ff3f) ^ 0x11000000)) == 0 && total >= 28 && total + 14 <= len);
}

/* Returns 1 if a packet is plain TCP or ICMP. */
static __rte_noinline int is_plain_other(const uint8_t *d, uint32_t len)
{
	uint32_t total = be16(d + 16);
	if (len < 42 || be16(d + 12) != 0x0800 || d[14] != 0x45 || (be16(d + 20) & 0x3fff) != 0 || total + 14 > len)
		return 0;
	return (d[23] == 6 && total >= 40) || (d[23] == 1 && total >= 28);
}

/* Keys of a burst by field: meta, source, destination and ports of each group of packets, the ports in host byte order. */
#ifdef __AVX512F__
#define LANES 16
typedef __m512i lanes;
#else
#define LANES 8
typedef __m256i lanes;
#endif
struct burst {
	lanes of[BURST / LANES][4];
};

#ifdef __AVX512F__
/* Packet i of 16 is in lane 4 * (i % 4) + i / 4. */
static __rte_always_inline void transpose(const struct key *keys, lanes out[4])
{
	const lanes swap = _mm512_broadcast_i32x4(_mm_set_epi8(14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1));
	lanes a = _mm512_load_si512(keys), b = _mm512_load_si512(keys + 4), c = _mm512_load_si512(keys + 8),
	      e = _mm512_load_si512(keys + 12);
	lanes ab = _mm512_unpacklo_epi32(a, b), ce = _mm512_unpacklo_epi32(c, e);
	lanes hab = _mm512_unpackhi_epi32(a, b), hce = _mm512_unpackhi_epi32(c, e);
	out[0] = _mm512_unpacklo_epi64(ab, ce);
	out[1] = _mm512_unpackhi_epi64(ab, ce);
	out[2] = _mm512_unpacklo_epi64(hab, hce);
	out[3] = _mm512_shuffle_epi8(_mm512_unpackhi_epi64(hab, hce), swap);
}

/* Converts a mask of lanes to one of packets: lane i is packet 4 * (i % 4) + i / 4, and vice versa. */
static __rte_always_inline uint64_t lanes_to_packets(uint64_t set)
{
	uint64_t out = 0;
	for (int i = 0; i < BURST; i++)
		out |= (set >> i & 1) << ((i & ~15) | (i & 3) << 2 | (i >> 2 & 3));
	return out;
}

static __rte_always_inline uint64_t meets(const struct rule *r, const lanes k[4])
{
#define ALL(field) _mm512_set1_epi32(r->field)
	lanes x = _mm512_and_si512(_mm512_xor_si512(k[0], ALL(meta)), ALL(meta_mask));
	lanes y = _mm512_and_si512(_mm512_xor_si512(k[1], ALL(src)), ALL(src_mask));
	lanes z = _mm512_and_si512(_mm512_xor_si512(k[2], ALL(dst)), ALL(dst_mask));
	lanes p = _mm512_subs_epu16(_mm512_sub_epi16(k[3], ALL(first)), ALL(span));
#undef ALL
	lanes rest = _mm512_or_si512(_mm512_ternarylogic_epi32(x, y, z, 0xfe), p);
	return _mm512_testn_epi32_mask(rest, rest);
}
#else
/* Packet i of 8 is in lane i. */
static __rte_always_inline void transpose(const struct key *keys, lanes out[4])
{
	const lanes swap = _mm256_broadcastsi128_si256(_mm_set_epi8(14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1));
#define TWO(i) \
	_mm256_inserti128_si256(_mm256_castsi128_si256(_mm_load_si128((const __m128i *)(keys + (i)))), \
				_mm_load_si128((const __m128i *)(keys + (i) + 4)), 1)
	lanes a = TWO(0), b = TWO(1), c = TWO(2), e = TWO(3);
#undef TWO
	lanes ab = _mm256_unpacklo_epi32(a, b), ce = _mm256_unpacklo_epi32(c, e);
	lanes hab = _mm256_unpackhi_epi32(a, b), hce = _mm256_unpackhi_epi32(c, e);
	out[0] = _mm256_unpacklo_epi64(ab, ce);
	out[1] = _mm256_unpackhi_epi64(ab, ce);
	out[2] = _mm256_unpacklo_epi64(hab, hce);
	out[3] = _mm256_shuffle_epi8(_mm256_unpackhi_epi64(hab, hce), swap);
}

static __rte_always_inline uint64_t lanes_to_packets(uint64_t set)
{
	return set;
}

static __rte_always_inline uint64_t meets(const struct rule *r, const lanes k[4])
{
#define ALL(field) _mm256_set1_epi32(r->field)
	lanes x = _mm256_and_si256(_mm256_xor_si256(k[0], ALL(meta)), ALL(meta_mask));
	lanes y = _mm256_and_si256(_mm256_xor_si256(k[1], ALL(src)), ALL(src_mask));
	lanes z = _mm256_and_si256(_mm256_xor_si256(k[2], ALL(dst)), ALL(dst_mask));
	lanes p = _mm256_subs_epu16(_mm256_sub_epi16(k[3], ALL(first)), ALL(span));
#undef ALL
	lanes rest = _mm256_or_si256(_mm256_or_si256(x, y), _mm256_or_si256(z, p));
	return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(rest, _mm256_setzero_si256())));
}
#endif

static __rte_always_inline uint16_t firewall(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	struct firewall *f = state;
	struct key keys[BURST] __rte_cache_aligned;
	const __m128i key_mask = _mm_set_epi32(-1, -1, -1, 0xffff);
	uint64_t not_plain = 0;
	prefetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		prefetch(p, i, n);
		const uint8_t *d = rte_pktmbuf_mtod(p[i], const uint8_t *);
		_mm_store_si128((__m128i *)&keys[i], _mm_and_si128(_mm_loadu_si128((const __m128i *)(d + 22)), key_mask));
		if (unlikely(!is_plain(d, p[i]->data_len))) {
			if (!is_plain_other(d, p[i]->data_len)) {
				not_plain |= 1ull << i;
			} else if (d[23] == 6) {
				keys[i].flags = d[47];
			} else {
				keys[i].kind = KIND_NO_PORTS | KIND_ICMP;
				keys[i].sport = rte_cpu_to_be_16(d[34]);
				keys[i].dport = rte_cpu_to_be_16(d[35]);
			}
		}
	}
	struct burst burst;
	for (uint32_t i = 0; i < BURST / LANES; i++)
		transpose(keys + i * LANES, burst.of[i]);
	uint64_t todo = UINT64_MAX, drops = 0;
	if (unlikely(n < BURST || not_plain != 0))
		todo = lanes_to_packets((n < BURST ? (1ull << n) - 1 : UINT64_MAX) & ~not_plain);
	for (uint32_t i = 0; i < f->n; i++) {
		const struct rule *r = &f->rules[i];
		uint64_t hits = 0;
		for (uint32_t g = 0; g < BURST / LANES; g++)
			hits |= meets(r, burst.of[g]) << g * LANES;
		hits &= todo;
		todo ^= hits;
		drops |= hits & (uint64_t)(int32_t)r->drop;
		f->counts[i + 1] += __builtin_popcountll(hits);
	}
	f->counts[0] += __builtin_popcountll(todo);
	if (unlikely(drops | (todo & f->drop_by_default))) {
		c->dropped[REFUSED] += __builtin_popcountll(drops);
		c->dropped[REFUSED_BY_DEFAULT] += __builtin_popcountll(todo & f->drop_by_default);
		drops = lanes_to_packets(drops | (todo & f->drop_by_default));
	}
	for (; unlikely(not_plain != 0); not_plain &= not_plain - 1) {
		uint32_t i = __builtin_ctzll(not_plain);
		int bad = process_not_plain(f, p[i]);
		if (bad >= 0) {
			c->dropped[bad]++;
			drops |= 1ull << i;
		}
	}
	return likely(drops == 0) ? n : free_dropped(p, n, drops);
}

NETWORK_FUNCTION(firewall, firewall)

/* Writes 1 + the rule of each of n packets, or 0; packets start at their protocol. */
void native_firewall_classify(struct firewall *f, const uint8_t **from, uint32_t *found, uint32_t n)
{
	rte_acl_classify(f->acl, from, found, n, 1);
}

static __rte_always_inline uint16_t firewall_acl(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	/* read by rte_acl for packets that are not plain */
	static const uint8_t nothing[16];
	struct firewall *f = state;
	const uint8_t *from[BURST];
	uint32_t rules[BURST];
	uint64_t not_plain = 0, drops = 0, missed = 0;
	prefetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		prefetch(p, i, n);
		const uint8_t *d = rte_pktmbuf_mtod(p[i], const uint8_t *);
		from[i] = d + 23;
		if (unlikely(!is_plain(d, p[i]->data_len) && (d[23] != 6 || !is_plain_other(d, p[i]->data_len)))) {
			not_plain |= 1ull << i;
			from[i] = nothing;
		}
	}
	rte_acl_classify(f->acl, from, rules, n, 1);
	for (uint16_t i = 0; i < n; i++) {
		uint32_t rule = rules[i];
		uint64_t none = rule == 0;
		(*(none ? &f->spare[i & 7] : &f->counts[rule]))++;
		missed |= none << i;
		drops |= (uint64_t)(none ? 0 : f->rules[rule - 1].drop & 1) << i;
	}
	missed &= ~not_plain;
	f->counts[0] += __builtin_popcountll(missed);
	c->dropped[REFUSED] += __builtin_popcountll(drops);
	c->dropped[REFUSED_BY_DEFAULT] += __builtin_popcountll(missed & f->drop_by_default);
	drops |= missed & f->drop_by_default;
	for (; unlikely(not_plain != 0); not_plain &= not_plain - 1) {
		uint32_t i = __builtin_ctzll(not_plain);
		int bad = process_not_plain(f, p[i]);
		if (bad >= 0) {
			c->dropped[bad]++;
			drops |= 1ull << i;
		}
	}
	return likely(drops == 0) ? n : free_dropped(p, n, drops);
}

NETWORK_FUNCTION(firewall_acl, firewall_acl)
