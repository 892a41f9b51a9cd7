/* NAT of TCP and UDP: endpoint-dependent mapping, port preservation if possible, an entry for each direction of a session. */
#include "forward.h"

/* One direction of a session, half a cache line. The first sixteen bytes are the key, except for the time in them. */
struct entry {
	uint32_t src, dst, ports; /* network byte order */
	uint32_t protocol_and_time;	  /* protocol, and above it the time of the last packet in sixteenths of a second; 0: free */
	uint32_t ip, upper;	  /* added to the complement of the checksums of IP and transport headers */
	uint32_t address;	  /* new source or destination */
	uint16_t port;
	uint8_t state, way;
};

#define PROTOCOL 0xff
/* An entry is in its primary line, like nearly all, or in one of the next: ascending ports are close together. */
#define WINDOW 256
/* Entries searched for expired ones every millisecond. */
#define PART 512
#define LOOK 32
#define FIN 1
#define SYN 2
#define RST 4
#define PLAIN 8

struct nat {
	struct entry *entries[2]; /* outbound, inbound */
	uint64_t lines;
	uint64_t seed[2];
	uint32_t capacity, len, external; /* external in network byte order */
	uint32_t now, bursts, idle[2];	  /* idle timeouts of UDP and TCP in sixteenths of a second */
	uint64_t sweep, next_sweep, per_ms, per_tick, dropped;
};

static uint64_t table_bytes(const struct nat *n)
{
	return RTE_ALIGN((n->lines + WINDOW / 2) * 64, 2 << 20);
}

struct nat *native_nat_new(uint32_t capacity, uint32_t external, uint64_t cycles_per_second)
{
	struct nat *n = aligned_alloc(64, RTE_ALIGN(sizeof(*n), 64));
	memset(n, 0, sizeof(*n));
	n->capacity = capacity;
	n->external = external;
	n->per_ms = cycles_per_second / 1000;
	n->per_tick = cycles_per_second / 16;
	n->lines = capacity; /* two entries each: half of them remain free */
	n->seed[0] = 0x9e3779b97f4a7c15;
	n->seed[1] = 0xbf58476d1ce4e5b9;
	n->idle[0] = 300 * 16;
	n->idle[1] = 7440 * 16;
	n->entries[0] = table_new(table_bytes(n));
	n->entries[1] = table_new(table_bytes(n));
	return n;
}

void native_nat_free(struct nat *n)
{
	for (int i = 0; i < 2; i++)
		table_free(n->entries[i], table_bytes(n));
	free(n);
}

uint32_t native_nat_len(const struct nat *n)
{
	return n->len;
}

static __rte_always_inline struct entry *home_of(const struct nat *n, int way, __m128i key)
{
	uint64_t low = _mm_cvtsi128_si64(key), high = _mm_extract_epi64(key, 1);
	unsigned __int128 product = (unsigned __int128)(low ^ n->seed[0]) * (high ^ n->seed[1]);
	uint64_t hash = ((uint64_t)product ^ (uint64_t)(product >> 64)) * 0xd1342543de82ef95;
	return n->entries[way] + 2 * (((hash >> 32) * n->lines) >> 32);
}

static __rte_always_inline int same(const struct entry *e, __m128i key)
{
	const __m128i key_mask = _mm_set_epi32(PROTOCOL, -1, -1, -1);
	return _mm_testz_si128(_mm_xor_si128(_mm_load_si128((const __m128i *)e), key), key_mask);
}

static struct entry *find(struct entry *primary, __m128i key)
{
	for (struct entry *e = primary; e < primary + WINDOW; e++)
		if (e->protocol_and_time != 0 && same(e, key))
			return e;
	return NULL;
}

static struct entry *vacant(struct entry *primary)
{
	for (struct entry *e = primary; e < primary + WINDOW; e++)
		if (e->protocol_and_time == 0)
			return e;
	return NULL;
}

static __rte_noinline void age_entries(struct nat *n)
{
	uint64_t slots = (n->lines + WINDOW / 2 - 1) * 2;
	for (uint32_t i = 0; i < PART; i++) {
		struct entry *e = &n->entries[0][n->sweep];
		n->sweep = n->sweep + 1 == slots ? 0 : n->sweep + 1;
		uint32_t idle = (n->now - e->protocol_and_time) >> 8;
		if (e->protocol_and_time == 0 || (int32_t)(n->now - e->protocol_and_time) <= 0 || idle < n->idle[0])
			continue;
		uint32_t ports = (uint32_t)e->port | (e->ports & 0xffff0000);
		__m128i key = _mm_set_epi32(e->protocol_and_time & PROTOCOL, (int)(ports << 16 | ports >> 16), (int)e->address, (int)e->dst);
		struct entry *back = find(home_of(n, 1, key), key);
		uint32_t idle_back = back ? (n->now - back->protocol_and_time) >> 8 : idle;
		if (RTE_MIN(idle, idle_back) < n->idle[(e->protocol_and_time & PROTOCOL) == 6])
			continue;
		if (back)
			memset(back, 0, sizeof(*back));
		memset(e, 0, sizeof(*e));
		n->len--;
	}
}

static uint32_t folded(uint32_t sum)
{
	return (sum & 0xffff) + (sum >> 16);
}

/* Sums are of 16-bit words in host byte order, which does not affect one's complement sums. */
static void translate(struct entry *e, uint32_t old, uint32_t new, uint16_t old_port, uint16_t new_port)
{
	uint32_t ip = folded((~old >> 16) + (~old & 0xffff) + (new >> 16) + (new & 0xffff));
	e->ip = folded(ip);
	e->upper = folded(folded(ip + (uint16_t)~old_port + new_port));
	e->address = new;
	e->port = new_port;
}

/* Creates a session for a first packet; its port is preserved if replies are unambiguous, otherwise the next
 * suitable one is used. */
static __rte_noinline struct entry *begin(struct nat *n, struct entry *primary, __m128i key, uint8_t said, uint8_t flags)
{
	uint32_t src = _mm_extract_epi32(key, 0), dst = _mm_extract_epi32(key, 1), ports = _mm_extract_epi32(key, 2);
	uint32_t protocol = _mm_extract_epi32(key, 3);
	uint16_t old = ports & 0xffff, port = old;
	if (n->len == n->capacity || (protocol == 6 && (flags & (FIN | SYN | RST | 0x10)) != SYN))
		return NULL;
	struct entry *out = vacant(primary), *back_home;
	__m128i back;
	for (uint32_t tries = 0;; port = rte_cpu_to_be_16(RTE_MAX(rte_be_to_cpu_16(port) + 1, 1024))) {
		back = _mm_set_epi32(protocol, (int)((uint32_t)port << 16 | ports >> 16), (int)n->external, (int)dst);
		back_home = home_of(n, 1, back);
		if (rte_be_to_cpu_16(port) >= 1024 && find(back_home, back) == NULL)
			break;
		if (++tries == 128)
			return NULL;
	}
	struct entry *in = vacant(back_home);
	if (out == NULL || in == NULL)
		return NULL;
	_mm_store_si128((__m128i *)out, key);
	_mm_store_si128((__m128i *)in, back);
	out->protocol_and_time |= n->now;
	in->protocol_and_time |= n->now;
	translate(out, src, n->external, old, port);
	translate(in, n->external, src, port, old);
	out->state = said;
	in->state = protocol == 6 ? 0 : PLAIN;
	n->len++;
	return out;
}

/* Packets whose entry is not in its primary line, or is new, or whose flags change the session. */
static __rte_noinline struct entry *other(struct nat *n, struct entry *primary, __m128i key, uint8_t said, uint8_t flags)
{
	struct entry *e = find(primary, key);
	if (e == NULL)
		return begin(n, primary, key, said, flags);
	e->state |= said;
	return e;
}

static __rte_always_inline uint16_t sum_of(uint16_t sum, uint32_t delta)
{
	uint32_t s = (uint16_t)~sum + delta;
	return (uint16_t)~folded(folded(s));
}

static __rte_always_inline uint16_t nat(struct rte_mbuf **p, uint16_t count, struct counts *c, void *state)
{
	struct nat *n = state;
	__m128i keys[BURST];
	struct entry *primaries[BURST];
	uint8_t *frames[BURST];
	uint8_t said[BURST];
	uint16_t place[BURST];
	uint32_t taken = 0;
	uint64_t drops = 0;
	prefetch_first(p, count);
	for (uint16_t i = 0; i < count; i++) {
		prefetch(p, i, count);
		uint8_t *d = rte_pktmbuf_mtod(p[i], uint8_t *);
		uint32_t len = p[i]->data_len;
		uint64_t a;
		uint32_t b;
		memcpy(&a, d + 12, 8);
		memcpy(&b, d + 20, 4);
		uint32_t total = rte_be_to_cpu_16((uint16_t)(a >> 32)), protocol = b >> 24;
		int tcp = protocol == 6;
		/* EtherType and version; flags and fragment offset. Buffers are longer than what is read of short frames. */
		int plain = len >= 54 && ((a & 0xffffff) ^ 0x450008) == 0 && (b & 0xffbf) == 0 && (protocol == 17 || tcp) &&
			    total >= (tcp ? 40u : 28u) && total + 14 <= len;
		if (unlikely(!plain)) {
			/* fragments, options, VLAN tags and ICMP are not part of this comparison */
			drops |= 1ull << i;
			continue;
		}
		__m128i key = _mm_insert_epi32(_mm_loadu_si128((const __m128i *)(d + 26)), (int)protocol, 3);
		struct entry *primary = home_of(n, 0, key);
		rte_prefetch0(primary);
		keys[taken] = key;
		primaries[taken] = primary;
		frames[taken] = d;
		uint8_t control = d[47] & (FIN | SYN | RST);
		said[taken] = tcp && control ? control : PLAIN;
		place[taken++] = i;
	}
	if (unlikely(n->bursts++ % LOOK == 0)) {
		uint64_t cycles = rte_rdtsc();
		n->now = (uint32_t)(cycles / n->per_tick) << 8;
		if (cycles >= n->next_sweep) {
			n->next_sweep = cycles + n->per_ms;
			age_entries(n);
		}
	}
	for (uint32_t i = 0; i < taken; i++) {
		struct entry *e = primaries[i];
		uint8_t *d = frames[i];
		if (likely(same(e, keys[i])))
			;
		else if (likely(same(e + 1, keys[i])))
			e++;
		else
			e = NULL;
		if (unlikely(e == NULL || said[i] & (~e->state | SYN) || e->protocol_and_time == 0)) {
			e = other(n, primaries[i], keys[i], said[i], d[47]);
			if (e == NULL) {
				drops |= 1ull << place[i];
				continue;
			}
		}
		if (unlikely((e->protocol_and_time & ~PROTOCOL) != n->now))
			e->protocol_and_time = (e->protocol_and_time & PROTOCOL) | n->now;
		uint16_t sum;
		memcpy(d + 26, &e->address, 4);
		memcpy(d + 34, &e->port, 2);
		memcpy(&sum, d + 24, 2);
		sum = sum_of(sum, e->ip);
		memcpy(d + 24, &sum, 2);
		if (d[23] == 6) {
			memcpy(&sum, d + 50, 2);
			sum = sum_of(sum, e->upper);
			memcpy(d + 50, &sum, 2);
		} else {
			memcpy(&sum, d + 40, 2);
			uint16_t new = sum_of(sum, e->upper);
			new = new ? new : 0xffff;
			sum = sum ? new : 0;
			memcpy(d + 40, &sum, 2);
		}
	}
	if (unlikely(drops != 0)) {
		c->dropped[0] += __builtin_popcountll(drops);
		return free_dropped(p, count, drops);
	}
	return count;
}

NETWORK_FUNCTION_ON(nat, nat, FRESH_FLOW)
