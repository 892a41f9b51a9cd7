/* Learning bridge of two ports. */
#include "forward.h"

enum { MALFORMED_ETHERNET, SOURCE_GROUP, SAME_PORT };

#define MAC 0xffffffffffff
/* Group bit: the lowest bit of the first byte. */
#define GROUP 1
/* An address is in its primary line or the next one. */
#define IN_LINE 4
#define WINDOW 8
/* Slots searched for old entries every millisecond. */
#define PART 64
/* Number of bursts after which the clock is read. */
#define LOOK 32

struct mac_entry {
	uint64_t address; /* network byte order, first byte lowest; 0: free */
	uint32_t last_seen;	  /* in units of 16 ms */
	uint32_t port;
};

struct bridge {
	struct mac_entry *entries;
	uint64_t lines, seed[2], per_unit, per_ms, next_sweep, sweep;
	uint32_t capacity, len, age, now, bursts;
};

static __rte_always_inline uint64_t slots(const struct bridge *b) { return (b->lines + 1) * IN_LINE; }

static size_t bytes(const struct bridge *b) { return RTE_ALIGN(slots(b) * sizeof(struct mac_entry), 2 << 20); }

struct bridge *native_bridge_new(uint32_t addresses, uint32_t age_s, uint64_t cycles_per_second)
{
	struct bridge *b = calloc(1, sizeof(*b));
	b->capacity = addresses;
	b->lines = addresses / 2 + 1; /* half of the slots remain free */
	b->seed[0] = 0x9e3779b97f4a7c15;
	b->seed[1] = 0xbf58476d1ce4e5b9;
	b->entries = table_new(bytes(b));
	b->age = age_s * 1000 / 16;
	b->per_ms = cycles_per_second / 1000;
	b->per_unit = b->per_ms * 16;
	return b;
}

void native_bridge_free(struct bridge *b)
{
	table_free(b->entries, bytes(b));
	free(b);
}

static __rte_noinline void age_entries(struct bridge *b)
{
	for (uint32_t i = 0; i < PART; i++) {
		struct mac_entry *s = &b->entries[b->sweep];
		b->sweep = b->sweep + 1 == slots(b) ? 0 : b->sweep + 1;
		if (s->address != 0 && b->now - s->last_seen >= b->age) {
			s->address = 0;
			b->len--;
		}
	}
}

static __rte_always_inline struct mac_entry *primary_line(const struct bridge *b, uint64_t address)
{
	unsigned __int128 product = (unsigned __int128)(address ^ b->seed[0]) * b->seed[1];
	uint64_t hash = (uint64_t)product ^ (uint64_t)(product >> 64);
	struct mac_entry *line = b->entries + IN_LINE * (((hash >> 32) * b->lines) >> 32);
	rte_prefetch0(line);
	return line;
}

/* Returns NULL if the address is not in the table. */
static __rte_always_inline struct mac_entry *find(struct mac_entry *at, uint64_t address)
{
	for (int i = 0; i < WINDOW; i++)
		if (at[i].address == address)
			return &at[i];
	return NULL;
}

/* If the line is full, the address is not learned. */
static __rte_noinline void learn(struct bridge *b, struct mac_entry *at, uint64_t address, uint32_t port)
{
	for (int i = 0; i < WINDOW && b->len < b->capacity; i++)
		if (at[i].address == 0) {
			at[i] = (struct mac_entry){.address = address, .last_seen = b->now, .port = port};
			b->len++;
			return;
		}
}

/* Processes frames of one port; those that are not dropped are sent to the other. */
static __rte_always_inline uint16_t bridge(struct bridge *b, struct rte_mbuf **p, uint16_t n, struct counts *c, uint32_t port)
{
	uint64_t dst[BURST], src[BURST], last = 0, destination = 0;
	struct mac_entry *to[BURST], *from[BURST], *primary = b->entries;
	uint64_t drops = 0;
	uint32_t senders = 0;
	prefetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		prefetch(p, i, n);
		const uint8_t *d = rte_pktmbuf_mtod(p[i], const uint8_t *);
		uint64_t sender;
		/* the buffer has at least fourteen bytes, whatever the frame's length */
		memcpy(&dst[i], d, 8);
		memcpy(&sender, d + 6, 8);
		dst[i] &= MAC;
		sender &= MAC;
		/* successive frames often have the same source and destination */
		if (dst[i] != destination) {
			destination = dst[i];
			primary = primary_line(b, destination);
		}
		to[i] = primary;
		if (unlikely(p[i]->data_len < RTE_ETHER_HDR_LEN || sender & GROUP)) {
			c->dropped[sender & GROUP ? SOURCE_GROUP : MALFORMED_ETHERNET]++;
			drops |= 1ull << i;
			continue;
		}
		if (sender != last) {
			last = src[senders] = sender;
			from[senders++] = primary_line(b, sender);
		}
	}
	if (unlikely(b->bursts++ % LOOK == 0)) {
		uint64_t cycles = rte_rdtsc();
		b->now = cycles / b->per_unit;
		if (cycles >= b->next_sweep) {
			b->next_sweep = cycles + b->per_ms;
			age_entries(b);
		}
	}
	for (uint32_t i = 0; i < senders; i++) {
		struct mac_entry *s = find(from[i], src[i]);
		if (unlikely(s == NULL)) {
			learn(b, from[i], src[i], port);
			continue;
		}
		if (unlikely(s->port != port))
			s->port = port;
		if (unlikely(s->last_seen != b->now))
			s->last_seen = b->now;
	}
	uint64_t before = 0;
	int stays = 0;
	for (uint16_t i = 0; i < n; i++) {
		if (unlikely(drops >> i & 1))
			continue;
		if (dst[i] != before) {
			before = dst[i];
			/* frames to unknown and group addresses are flooded: with two ports, to the other one */
			const struct mac_entry *s = dst[i] & GROUP ? NULL : find(to[i], dst[i]);
			stays = unlikely(s != NULL && s->port == port);
		}
		if (unlikely(stays)) {
			c->dropped[SAME_PORT]++;
			drops |= 1ull << i;
		}
	}
	return likely(drops == 0) ? n : free_dropped(p, n, drops);
}

/* As forward(), for the two ports of a bridge. */
void native_bridge(struct port *a, struct port *b, uint32_t bursts, struct counts *c, void *state)
{
	struct rte_mbuf *p[BURST] __rte_cache_aligned;
	for (uint32_t k = 0; k < bursts; k++) {
		struct port *rx = k & 1 ? b : a, *tx = k & 1 ? a : b;
		int kind = rx->fresh != NULL ? FRESH_MACS : MEMORY;
		uint16_t n = receive(rx, p, kind);
		c->received += n;
		n = bridge(state, p, n, c, k & 1);
		c->sent += transmit(tx, p, n, kind);
	}
}
