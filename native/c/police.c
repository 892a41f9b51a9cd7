/* Meters packets by source address with the single rate three colour markers of DPDK: green packets pass, yellow ones
 * are marked as AF12, red ones are dropped. A table has a meter for each source; idle ones are removed. */
#include "forward.h"
#include <rte_cycles.h>
#include <rte_meter.h>

enum { POLICED, FULL };

/* A source, half a cache line. */
struct subscriber {
	uint32_t src; /* network byte order */
	uint32_t used;
	struct rte_meter_srtcm meter;
};

_Static_assert(sizeof(struct subscriber) == 32, "two to a cache line");

/* A subscriber is in its primary line or one of the three next ones. */
#define WINDOW 8
/* Slots searched for idle subscribers every millisecond. */
#define PART 2048

struct police {
	struct subscriber *subscribers;
	uint64_t lines, seed, sweep, next_sweep, per_ms;
	struct rte_meter_srtcm_profile profile;
	struct rte_meter_srtcm_params params;
	uint32_t capacity, len;
	uint64_t colours[RTE_COLORS];
};

struct police *native_police_new(uint32_t capacity, uint64_t cir, uint64_t cbs, uint64_t ebs, uint64_t cycles_per_second)
{
	struct police *m = aligned_alloc(64, RTE_ALIGN(sizeof(*m), 64));
	memset(m, 0, sizeof(*m));
	m->params = (struct rte_meter_srtcm_params){.cir = cir, .cbs = cbs, .ebs = ebs};
	if (rte_meter_srtcm_profile_config(&m->profile, &m->params) != 0)
		abort();
	m->capacity = capacity;
	m->per_ms = cycles_per_second / 1000;
	m->lines = capacity; /* two slots each: half of them remain free */
	m->seed = 0x9e3779b97f4a7c15;
	m->subscribers = table_new(RTE_ALIGN((m->lines + WINDOW / 2) * 64, 2 << 20));
	return m;
}

void native_police_free(struct police *m)
{
	table_free(m->subscribers, RTE_ALIGN((m->lines + WINDOW / 2) * 64, 2 << 20));
	free(m);
}

/* Removes subscribers whose buckets are full, which are like new ones. */
static __rte_noinline void age_entries(struct police *m, uint64_t now)
{
	uint64_t slots = (m->lines + WINDOW / 2 - 1) * 2;
	for (uint32_t i = 0; i < PART; i++) {
		struct subscriber *s = &m->subscribers[m->sweep];
		m->sweep = m->sweep + 1 == slots ? 0 : m->sweep + 1;
		if (!s->used)
			continue;
		rte_meter_srtcm_color_blind_check(&s->meter, &m->profile, now, 0);
		if (s->meter.tc == m->params.cbs && s->meter.te == m->params.ebs) {
			s->used = 0;
			m->len--;
		}
	}
}

static __rte_noinline struct subscriber *find_or_insert(struct police *m, struct subscriber *primary, uint32_t src, uint64_t now)
{
	struct subscriber *free_slot = NULL;
	for (struct subscriber *s = primary; s < primary + WINDOW; s++) {
		if (s->used && s->src == src)
			return s;
		if (!s->used && free_slot == NULL)
			free_slot = s;
	}
	if (free_slot == NULL || m->len == m->capacity)
		return NULL;
	free_slot->src = src;
	free_slot->used = 1;
	rte_meter_srtcm_config(&free_slot->meter, &m->profile);
	free_slot->meter.time = now;
	m->len++;
	return free_slot;
}

/* Replaces the code point and updates the checksum (RFC 1624). */
static __rte_noinline void mark(uint8_t *ip, uint8_t dscp)
{
	uint16_t before, after, sum;
	memcpy(&before, ip, 2);
	ip[1] = (ip[1] & 3) | dscp << 2;
	memcpy(&after, ip, 2);
	memcpy(&sum, ip + 10, 2);
	uint32_t s = (uint16_t)~sum + (uint16_t)~before + after;
	s = (s & 0xffff) + (s >> 16);
	s = (s & 0xffff) + (s >> 16);
	sum = ~s;
	memcpy(ip + 10, &sum, 2);
}

static __rte_always_inline uint16_t police(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	struct police *m = state;
	struct subscriber *primary[BURST];
	uint32_t sources[BURST];
	uint64_t drops = 0, now = rte_rdtsc(), colours[RTE_COLORS] = {0};
	prefetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		prefetch(p, i, n);
		const uint8_t *d = rte_pktmbuf_mtod(p[i], const uint8_t *);
		uint64_t a;
		memcpy(&a, d + 12, 8);
		memcpy(&sources[i], d + 26, 4);
		uint32_t total = rte_be_to_cpu_16((uint16_t)(a >> 32));
		/* EtherType and version; options, VLAN tags and IPv6 are not part of this comparison */
		if (unlikely(((a & 0xffffff) ^ 0x450008) != 0 || total + 14 > p[i]->data_len))
			sources[i] = 0;
		uint64_t product = (sources[i] ^ m->seed) * 0xd1342543de82ef95;
		primary[i] = m->subscribers + 2 * (((product >> 32) * m->lines) >> 32);
		rte_prefetch0(primary[i]);
	}
	for (uint16_t i = 0; i < n; i++) {
		struct subscriber *s = primary[i];
		if (unlikely(!(s->used && s->src == sources[i]))) {
			s = find_or_insert(m, s, sources[i], now);
			if (unlikely(s == NULL)) {
				c->dropped[FULL]++;
				drops |= 1ull << i;
				continue;
			}
		}
		enum rte_color colour = rte_meter_srtcm_color_blind_check(&s->meter, &m->profile, now, p[i]->data_len);
		colours[colour]++;
		if (likely(colour == RTE_COLOR_GREEN))
			continue;
		if (colour == RTE_COLOR_YELLOW) {
			if (likely(sources[i] != 0))
				mark(rte_pktmbuf_mtod(p[i], uint8_t *) + 14, 12);
		} else {
			c->dropped[POLICED]++;
			drops |= 1ull << i;
		}
	}
	for (int k = 0; k < RTE_COLORS; k++)
		m->colours[k] += colours[k];
	if (unlikely(now >= m->next_sweep)) {
		m->next_sweep = now + m->per_ms;
		age_entries(m, now);
	}
	return likely(drops == 0) ? n : free_dropped(p, n, drops);
}

NETWORK_FUNCTION_ON(police, police, FRESH_FLOW)
