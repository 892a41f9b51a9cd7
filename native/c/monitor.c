/* Counts packets and bytes of every IPv4 flow in a table with a maximum number of flows; idle flows expire, and the
 * one idle longest is evicted if the table is full. */
#include "forward.h"

/* A flow, half a cache line. The first sixteen bytes are the key, except for the time in them. */
struct flow {
	uint32_t src, dst, ports; /* network byte order */
	uint32_t protocol_and_time; /* protocol, and above it the time of the last packet in sixteenths of a second; 0: free */
	uint64_t packets, bytes;
};

#define PROTOCOL 0xff
/* A flow is in its primary line or one of the three next ones. */
#define WINDOW 8
/* Slots searched for expired flows every millisecond. */
#define PART 2048
/* Number of bursts after which the clock is read. */
#define LOOK 32

/* A packet whose flow is being prefetched. */
struct waiting {
	struct flow *primary;
	uint32_t bytes;
};

struct monitor {
	struct flow *flows;
	uint64_t lines; /* primary lines */
	uint64_t seed[2];
	uint32_t capacity, len, idle; /* idle in sixteenths of a second */
	uint32_t now, bursts; /* bursts since the clock was read */
	uint64_t evicted, expired, not_ip, sweep, next_sweep, per_ms, per_tick;
	/* The previous burst, whose lines are being prefetched. */
	uint32_t n, side;
	struct waiting waiting[2][BURST];
	__m128i keys[2][BURST];
};

struct monitor *native_monitor_new(uint32_t capacity, uint32_t idle_s, uint64_t cycles_per_second)
{
	struct monitor *m = aligned_alloc(64, RTE_ALIGN(sizeof(*m), 64));
	memset(m, 0, sizeof(*m));
	m->capacity = capacity;
	m->idle = idle_s * 16;
	m->per_ms = cycles_per_second / 1000;
	m->per_tick = cycles_per_second / 16;
	m->lines = capacity; /* two slots each: half of them remain free */
	m->seed[0] = 0x9e3779b97f4a7c15;
	m->seed[1] = 0xbf58476d1ce4e5b9;
	size_t bytes = RTE_ALIGN((m->lines + WINDOW / 2) * 64, 2 << 20);
	m->flows = table_new(bytes);
	return m;
}

void native_monitor_free(struct monitor *m)
{
	size_t bytes = RTE_ALIGN((m->lines + WINDOW / 2) * 64, 2 << 20);
	table_free(m->flows, bytes);
	free(m);
}

static __rte_always_inline uint32_t now_of(const struct monitor *m, uint64_t cycles)
{
	return (uint32_t)(cycles / m->per_tick) << 8;
}

static __rte_noinline void age_entries(struct monitor *m, uint32_t now)
{
	uint64_t slots = (m->lines + WINDOW / 2 - 1) * 2;
	for (uint32_t i = 0; i < PART; i++) {
		struct flow *f = &m->flows[m->sweep];
		m->sweep = m->sweep + 1 == slots ? 0 : m->sweep + 1;
		if (f->protocol_and_time != 0 && ((now - f->protocol_and_time) >> 8) >= m->idle && (int32_t)(now - f->protocol_and_time) > 0) {
			memset(f, 0, sizeof(*f));
			m->len--;
			m->expired++;
		}
	}
}

static __rte_always_inline int same(const struct flow *f, __m128i key)
{
	const __m128i key_mask = _mm_set_epi32(PROTOCOL, -1, -1, -1);
	__m128i x = _mm_xor_si128(_mm_load_si128((const __m128i *)f), key);
	return _mm_testz_si128(x, key_mask);
}

/* Finds a flow that is not in its primary line, or inserts a new one. */
static __rte_noinline struct flow *find_or_insert(struct monitor *m, struct flow *primary, __m128i key, uint32_t now)
{
	struct flow *free_slot = NULL, *oldest = primary;
	for (struct flow *f = primary; f < primary + WINDOW; f++) {
		if (f->protocol_and_time == 0) {
			free_slot = free_slot ? free_slot : f;
			continue;
		}
		if (same(f, key))
			return f;
		if (now - (f->protocol_and_time & ~PROTOCOL) > now - (oldest->protocol_and_time & ~PROTOCOL))
			oldest = f;
	}
	struct flow *f = free_slot;
	if (f == NULL || m->len == m->capacity) {
		f = oldest;
		if (f->protocol_and_time != 0) {
			m->evicted++;
			m->len--;
		}
	}
	_mm_store_si128((__m128i *)f, key);
	f->packets = f->bytes = 0;
	m->len++;
	return f;
}

static __rte_always_inline void count_before(struct monitor *m, uint32_t now)
{
	const struct waiting *waiting = m->waiting[m->side];
	for (uint32_t i = 0; i < m->n; i++) {
		struct flow *f = waiting[i].primary;
		__m128i key = m->keys[m->side][i];
		if (likely(same(f, key)))
			;
		else if (likely(same(f + 1, key)))
			f++;
		else
			f = find_or_insert(m, f, key, now);
		/* an unnecessary store is omitted, as the next comparison of sixteen bytes would wait for it */
		if (unlikely((f->protocol_and_time & ~PROTOCOL) != now))
			f->protocol_and_time = (f->protocol_and_time & PROTOCOL) | now;
		f->packets++;
		f->bytes += waiting[i].bytes;
	}
	m->n = 0;
}

static __rte_always_inline uint16_t monitor(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	struct monitor *m = state;
	struct waiting *waiting = m->waiting[m->side ^ 1];
	__m128i *keys = m->keys[m->side ^ 1];
	uint32_t taken = 0;
	(void)c;
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
			    total >= 24 && total + 14 <= len;
		if (unlikely(!plain)) {
			/* fragments, options, VLAN tags and IPv6 are not part of this comparison */
			m->not_ip++;
			continue;
		}
		__m128i key = _mm_insert_epi32(_mm_loadu_si128((const __m128i *)(d + 26)), protocol, 3);
		uint64_t low = _mm_cvtsi128_si64(key), high = _mm_extract_epi64(key, 1);
		unsigned __int128 product = (unsigned __int128)(low ^ m->seed[0]) * (high ^ m->seed[1]);
		uint64_t hash = ((uint64_t)product ^ (uint64_t)(product >> 64)) * 0xd1342543de82ef95;
		struct flow *primary = m->flows + 2 * (((hash >> 32) * m->lines) >> 32);
		rte_prefetch0(primary);
		keys[taken] = key;
		waiting[taken++] = (struct waiting){.primary = primary, .bytes = len};
	}
	if (unlikely(m->bursts++ % LOOK == 0)) {
		uint64_t cycles = rte_rdtsc();
		m->now = now_of(m, cycles);
		if (cycles >= m->next_sweep) {
			m->next_sweep = cycles + m->per_ms;
			age_entries(m, m->now);
		}
	}
	count_before(m, m->now);
	m->side ^= 1;
	m->n = taken;
	return n;
}

NETWORK_FUNCTION(monitor, monitor)

/* Copies up to `most` flows and returns their number. */
uint32_t native_monitor_flows(struct monitor *m, struct flow *out, uint32_t most)
{
	uint32_t n = 0;
	count_before(m, now_of(m, rte_rdtsc()));
	for (uint64_t i = 0; i < (m->lines + WINDOW / 2 - 1) * 2; i++)
		if (m->flows[i].protocol_and_time != 0 && n < most)
			out[n++] = m->flows[i];
	return n;
}
