/* Maglev: forwards connections to virtual addresses to backends, by a connection table and, for new connections, a ring. Untagged
 * TCP and UDP over IPv4; other frames, and those for no virtual address, pass. Rewrites destination and port, or prepends an IPv4
 * header. */
#include "forward.h"

/* A connection, half a cache line. The first sixteen bytes are the key, except for the time in them. */
struct connection {
	uint32_t src, dst, ports; /* network byte order */
	uint32_t protocol_and_time; /* protocol, and above it the time of the last packet in sixteenths of a second; 0: free */
	uint32_t target;
	uint32_t unused[3];
};

#define PROTOCOL 0xff
/* A connection is in its primary line or one of the three next ones. */
#define WINDOW 8
/* Slots searched for expired connections every millisecond. */
#define PART 2048
/* Number of bursts after which the clock is read. */
#define LOOK 32
/* Slots of the table of virtual addresses. */
#define VIPS 64
#define VIP_SHIFT 58

/* Data for packets to a backend in one cache line. */
struct target {
	uint32_t dst; /* network byte order */
	uint16_t port; /* network byte order */
	uint8_t up;
	uint16_t ip, upper; /* checksum differences */
	uint32_t outer_sum;
	uint64_t packets;
	uint8_t outer[20];
} __rte_cache_aligned;

struct vip {
	uint64_t key; /* address, port, protocol; 0: none */
	uint32_t first; /* first of its targets */
	uint32_t unused;
};

struct maglev {
	struct connection *connections;
	const uint16_t *ring;
	struct target *targets;
	uint64_t lines; /* primary lines */
	uint64_t seed[2], ring_seed[2];
	uint32_t slots, capacity, len, idle; /* idle in sixteenths of a second */
	uint32_t tunnel, mtu; /* tunnel: 0 is NAT */
	uint32_t now, bursts; /* bursts since the clock was read */
	uint16_t id;
	uint64_t fresh, full, moved, expired, unmatched, sweep, next_sweep, per_ms, per_tick;
	struct vip vips[VIPS];
	/* The current burst, whose lines are being prefetched. */
	struct connection *primary[BURST];
	uint32_t first[BURST];
	uint8_t position[BURST];
	__m128i keys[BURST] __rte_cache_aligned;
};

static size_t table_bytes(const struct maglev *m)
{
	return RTE_ALIGN((m->lines + WINDOW / 2) * 64, 2 << 20);
}

struct maglev *native_maglev_new(uint32_t capacity, uint32_t idle_s, uint64_t cycles_per_second, const uint16_t *ring, uint32_t slots, uint32_t backends,
				 const uint64_t ring_seed[2], int tunnel)
{
	struct maglev *m = aligned_alloc(64, RTE_ALIGN(sizeof(*m), 64));
	memset(m, 0, sizeof(*m));
	m->capacity = capacity;
	m->idle = idle_s * 16;
	m->per_ms = cycles_per_second / 1000;
	m->per_tick = cycles_per_second / 16;
	m->lines = capacity; /* two slots each: half of them remain free */
	m->seed[0] = 0x9e3779b97f4a7c15;
	m->seed[1] = 0xbf58476d1ce4e5b9;
	memcpy(m->ring_seed, ring_seed, 16);
	m->ring = ring;
	m->slots = slots;
	m->tunnel = tunnel;
	m->mtu = 1500;
	m->targets = aligned_alloc(64, backends * sizeof(struct target));
	memset(m->targets, 0, backends * sizeof(struct target));
	size_t bytes = table_bytes(m);
	m->connections = table_new(bytes);
	return m;
}

void native_maglev_free(struct maglev *m)
{
	size_t bytes = table_bytes(m);
	table_free(m->connections, bytes);
	free(m->targets);
	free(m);
}

static __rte_always_inline uint64_t vip_key(uint32_t dst, uint16_t port, uint8_t protocol)
{
	return dst | (uint64_t)port << 32 | (uint64_t)protocol << 48;
}

static __rte_always_inline uint32_t vip_slot(uint64_t key)
{
	return (key * 0x9e3779b97f4a7c15) >> VIP_SHIFT;
}

/* Parameters are in network byte order; the backends of the virtual address are the first targets. */
void native_maglev_vip(struct maglev *m, uint32_t dst, uint16_t port, uint8_t protocol)
{
	uint64_t key = vip_key(dst, port, protocol);
	uint32_t at = vip_slot(key);
	while (m->vips[at % VIPS].key != 0)
		at++;
	m->vips[at % VIPS] = (struct vip){.key = key};
}

static __rte_always_inline uint16_t fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

static uint32_t half_sum(const uint8_t *bytes, uint32_t n)
{
	uint32_t sum = 0;
	for (uint32_t i = 0; i < n; i += 2) {
		uint16_t word;
		memcpy(&word, bytes + i, 2);
		sum += word;
	}
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static uint32_t change(uint32_t from, uint32_t to)
{
	return (~from & 0xffff) + (~from >> 16) + (to & 0xffff) + (to >> 16);
}

void native_maglev_backend(struct maglev *m, uint32_t n, uint32_t src, uint32_t vip, uint16_t vip_port, uint32_t dst, uint16_t port)
{
	struct target *t = &m->targets[n];
	uint32_t ip = change(vip, dst), upper = ip + (uint16_t)~vip_port + port;
	*t = (struct target){.dst = dst, .port = port, .up = 1, .ip = fold(ip), .upper = fold(upper)};
	const uint8_t head[12] = {0x45, 0, 0, 0, 0, 0, 0, 0, 64, 4, 0, 0};
	memcpy(t->outer, head, 12);
	memcpy(t->outer + 12, &src, 4);
	memcpy(t->outer + 16, &dst, 4);
	t->outer_sum = half_sum(t->outer, 20);
}

static __rte_noinline void age_entries(struct maglev *m, uint32_t now)
{
	uint64_t slots = (m->lines + WINDOW / 2 - 1) * 2;
	for (uint32_t i = 0; i < PART; i++) {
		struct connection *f = &m->connections[m->sweep];
		m->sweep = m->sweep + 1 == slots ? 0 : m->sweep + 1;
		if (f->protocol_and_time != 0 && ((now - f->protocol_and_time) >> 8) >= m->idle && (int32_t)(now - f->protocol_and_time) > 0) {
			memset(f, 0, sizeof(*f));
			m->len--;
			m->expired++;
		}
	}
}

static __rte_always_inline int same(const struct connection *f, __m128i key)
{
	const __m128i key_mask = _mm_set_epi32(PROTOCOL, -1, -1, -1);
	__m128i x = _mm_xor_si128(_mm_load_si128((const __m128i *)f), key);
	return _mm_testz_si128(x, key_mask);
}

static __rte_always_inline uint64_t mix(const uint64_t seed[2], __m128i key)
{
	uint64_t low = _mm_cvtsi128_si64(key), high = _mm_extract_epi64(key, 1);
	unsigned __int128 product = (unsigned __int128)(low ^ seed[0]) * (high ^ seed[1]);
	return ((uint64_t)product ^ (uint64_t)(product >> 64)) * 0xd1342543de82ef95;
}

static uint32_t choose(const struct maglev *m, uint32_t first, __m128i key)
{
	return first + m->ring[((mix(m->ring_seed, key) >> 32) * m->slots) >> 32];
}

/* Returns the target of a connection that is not in its primary line, or inserts a new one. */
static __rte_noinline uint32_t find_or_insert(struct maglev *m, struct connection *primary, uint32_t first, __m128i key, uint32_t now)
{
	struct connection *free_slot = NULL;
	for (struct connection *f = primary; f < primary + WINDOW; f++) {
		if (f->protocol_and_time == 0) {
			free_slot = free_slot ? free_slot : f;
		} else if (same(f, key)) {
			f->protocol_and_time = (f->protocol_and_time & PROTOCOL) | now;
			return f->target;
		}
	}
	uint32_t target = choose(m, first, key);
	if (free_slot == NULL || m->len == m->capacity) {
		m->full++;
		return target;
	}
	_mm_store_si128((__m128i *)free_slot, key);
	free_slot->protocol_and_time = (free_slot->protocol_and_time & PROTOCOL) | now;
	free_slot->target = target;
	m->len++;
	m->fresh++;
	return target;
}

static __rte_noinline uint32_t reassign(struct maglev *m, struct connection *primary, uint32_t first, __m128i key)
{
	uint32_t target = choose(m, first, key);
	for (struct connection *f = primary; f < primary + WINDOW; f++)
		if (f->protocol_and_time != 0 && same(f, key)) {
			m->moved += f->target != target;
			f->target = target;
		}
	return target;
}

/* Returns a checksum after a rewrite with a difference of 16 bits. */
static __rte_always_inline uint16_t plus(uint16_t sum, uint16_t delta)
{
	uint32_t x = (uint32_t)(uint16_t)~sum + delta;
	return ~(x + (x >> 16));
}

static __rte_always_inline void translate(uint8_t *d, const struct target *t)
{
	uint16_t sum;
	memcpy(&sum, d + 24, 2);
	sum = plus(sum, t->ip);
	memcpy(d + 24, &sum, 2);
	memcpy(d + 30, &t->dst, 4);
	memcpy(d + 36, &t->port, 2);
	int udp = d[23] == 17;
	uint8_t *at = d + (udp ? 40 : 50);
	memcpy(&sum, at, 2);
	uint16_t changed = plus(sum, t->upper);
	if (udp) {
		changed = changed == 0 ? 0xffff : changed;
		changed = sum == 0 ? 0 : changed;
	}
	memcpy(at, &changed, 2);
}

/* Prepends the tunnel header; returns 0 if the packet is too long or has no headroom. */
static __rte_always_inline int encapsulate(struct maglev *m, struct rte_mbuf *p, const struct target *t)
{
	uint8_t *d = rte_pktmbuf_mtod(p, uint8_t *);
	uint8_t ethernet[14], tos = d[15], whole = d[20] & 0x40;
	uint32_t len = (uint32_t)(d[16] << 8 | d[17]) + 20;
	memcpy(ethernet, d, 14);
	if (unlikely(len > m->mtu && (whole || len > 0xffff)))
		return 0;
	d = (uint8_t *)rte_pktmbuf_prepend(p, 20);
	if (unlikely(d == NULL))
		return 0;
	uint16_t id = rte_cpu_to_be_16(++m->id), length = rte_cpu_to_be_16((uint16_t)len);
	memcpy(d, ethernet, 14);
	memcpy(d + 14, t->outer, 20);
	uint16_t sum = ~fold(t->outer_sum + ((uint32_t)tos << 8) + length + id + whole);
	d[15] = tos;
	memcpy(d + 16, &length, 2);
	memcpy(d + 18, &id, 2);
	d[20] = whole;
	memcpy(d + 24, &sum, 2);
	return 1;
}

static __rte_always_inline uint16_t maglev(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	struct maglev *m = state;
	uint32_t taken = 0;
	uint64_t drops = 0;
	prefetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		prefetch(p, i, n);
		const uint8_t *d = rte_pktmbuf_mtod(p[i], const uint8_t *);
		uint32_t len = p[i]->data_len;
		uint64_t a;
		uint32_t b;
		memcpy(&a, d + 12, 8);
		memcpy(&b, d + 20, 4);
		uint32_t total = rte_be_to_cpu_16((uint16_t)(a >> 32)), protocol = b >> 24;
		/* EtherType and version; flags and fragment offset. Buffers are longer than what is read of short frames. */
		int plain = ((a & 0xffffff) ^ 0x450008) == 0 && (b & 0xff3f) == 0 && (protocol == 17 || protocol == 6) &&
			    total >= (protocol == 6 ? 40u : 28u) && total + 14 <= len;
		if (unlikely(!plain)) {
			/* fragments, options, VLAN tags and IPv6 are not part of this comparison */
			m->unmatched++;
			continue;
		}
		__m128i key = _mm_insert_epi32(_mm_loadu_si128((const __m128i *)(d + 26)), protocol, 3);
		uint64_t vip = vip_key(_mm_extract_epi32(key, 1), (uint32_t)_mm_extract_epi32(key, 2) >> 16, protocol);
		const struct vip *v = &m->vips[vip_slot(vip)];
		while (unlikely(v->key != vip && v->key != 0))
			v = v == &m->vips[VIPS - 1] ? m->vips : v + 1;
		if (unlikely(v->key == 0)) {
			m->unmatched++;
			continue;
		}
		uint64_t hash = mix(m->seed, key);
		struct connection *primary = m->connections + 2 * (((hash >> 32) * m->lines) >> 32);
		rte_prefetch0(primary);
		m->keys[taken] = key;
		m->primary[taken] = primary;
		m->first[taken] = v->first;
		m->position[taken++] = i;
	}
	if (unlikely(m->bursts++ % LOOK == 0)) {
		uint64_t cycles = rte_rdtsc();
		m->now = (uint32_t)(cycles / m->per_tick) << 8;
		if (cycles >= m->next_sweep) {
			m->next_sweep = cycles + m->per_ms;
			age_entries(m, m->now);
		}
	}
	uint32_t now = m->now;
	for (uint32_t i = 0; i < taken; i++) {
		struct connection *f = m->primary[i];
		__m128i key = m->keys[i];
		uint32_t target;
		if (likely(same(f, key)) || likely(same(++f, key))) {
			/* an unnecessary store is omitted, as the next comparison of sixteen bytes would wait for it */
			if (unlikely((f->protocol_and_time & ~PROTOCOL) != now))
				f->protocol_and_time = (f->protocol_and_time & PROTOCOL) | now;
			target = f->target;
		} else {
			target = find_or_insert(m, m->primary[i], m->first[i], key, now);
		}
		struct target *t = &m->targets[target];
		if (unlikely(!t->up))
			t = &m->targets[reassign(m, m->primary[i], m->first[i], key)];
		t->packets++;
		struct rte_mbuf *packet = p[m->position[i]];
		if (!m->tunnel)
			translate(rte_pktmbuf_mtod(packet, uint8_t *), t);
		else if (unlikely(!encapsulate(m, packet, t)))
			drops |= 1ull << m->position[i];
	}
	if (unlikely(drops)) {
		c->dropped[0] += __builtin_popcountll(drops);
		return free_dropped(p, n, drops);
	}
	return n;
}

NETWORK_FUNCTION_ON(maglev, maglev, FRESH_WHOLE)
