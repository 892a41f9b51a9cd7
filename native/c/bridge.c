/* Learns which MAC address is at which of two ports, and sends frames there. */
#include "forward.h"

enum { MALFORMED_ETHERNET, SOURCE_GROUP, SAME_PORT };

#define MAC 0xffffffffffff
/* The lowest bit of an address's first byte. */
#define GROUP 1
/* An address is in its home line or the one behind it. */
#define IN_LINE 4
#define WINDOW 8
/* Slots looked through every millisecond. */
#define PART 64
/* Bursts after which the clock is looked at. */
#define LOOK 32

struct station {
	uint64_t address; /* as on the wire, first byte lowest; 0: nobody's */
	uint32_t seen;	  /* in units of 16 ms */
	uint32_t port;
};

struct bridge {
	struct station *stations;
	uint64_t lines, seed[2], per_unit, per_ms, next_sweep, sweep;
	uint32_t capacity, len, age, now, bursts;
};

static __rte_always_inline uint64_t slots(const struct bridge *b) { return (b->lines + 1) * IN_LINE; }

static size_t bytes(const struct bridge *b) { return RTE_ALIGN(slots(b) * sizeof(struct station), 2 << 20); }

struct bridge *native_bridge_new(uint32_t addresses, uint32_t age_s, uint64_t cycles_per_second)
{
	struct bridge *b = calloc(1, sizeof(*b));
	b->capacity = addresses;
	b->lines = addresses / 2 + 1; /* half of the slots stay free */
	b->seed[0] = 0x9e3779b97f4a7c15;
	b->seed[1] = 0xbf58476d1ce4e5b9;
	b->stations = table_new(bytes(b));
	b->age = age_s * 1000 / 16;
	b->per_ms = cycles_per_second / 1000;
	b->per_unit = b->per_ms * 16;
	return b;
}

void native_bridge_free(struct bridge *b)
{
	table_free(b->stations, bytes(b));
	free(b);
}

static __rte_noinline void look_through(struct bridge *b)
{
	for (uint32_t i = 0; i < PART; i++) {
		struct station *s = &b->stations[b->sweep];
		b->sweep = b->sweep + 1 == slots(b) ? 0 : b->sweep + 1;
		if (s->address != 0 && b->now - s->seen >= b->age) {
			s->address = 0;
			b->len--;
		}
	}
}

static __rte_always_inline struct station *home(const struct bridge *b, uint64_t address)
{
	unsigned __int128 product = (unsigned __int128)(address ^ b->seed[0]) * b->seed[1];
	uint64_t hash = (uint64_t)product ^ (uint64_t)(product >> 64);
	struct station *line = b->stations + IN_LINE * (((hash >> 32) * b->lines) >> 32);
	rte_prefetch0(line);
	return line;
}

/* NULL: it is not there. */
static __rte_always_inline struct station *find(struct station *at, uint64_t address)
{
	for (int i = 0; i < WINDOW; i++)
		if (at[i].address == address)
			return &at[i];
	return NULL;
}

/* Without room, what is for it goes to both ports. */
static __rte_noinline void learn(struct bridge *b, struct station *at, uint64_t address, uint32_t port)
{
	for (int i = 0; i < WINDOW && b->len < b->capacity; i++)
		if (at[i].address == 0) {
			at[i] = (struct station){.address = address, .seen = b->now, .port = port};
			b->len++;
			return;
		}
}

/* Frames that came by one of two ports; those that go on go to the other. */
static __rte_always_inline uint16_t bridge(struct bridge *b, struct rte_mbuf **p, uint16_t n, struct counts *c, uint32_t port)
{
	uint64_t dst[BURST], src[BURST], last = 0, goal = 0;
	struct station *to[BURST], *from[BURST], *there = b->stations;
	uint32_t gone = 0, senders = 0;
	fetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		fetch(p, i, n);
		const uint8_t *d = rte_pktmbuf_mtod(p[i], const uint8_t *);
		uint64_t sender;
		/* the buffer has room for fourteen bytes, whatever the frame's length */
		memcpy(&dst[i], d, 8);
		memcpy(&sender, d + 6, 8);
		dst[i] &= MAC;
		sender &= MAC;
		/* frames for one station come in trains, as those of one sender do */
		if (dst[i] != goal) {
			goal = dst[i];
			there = home(b, goal);
		}
		to[i] = there;
		if (unlikely(p[i]->data_len < RTE_ETHER_HDR_LEN || sender & GROUP)) {
			c->dropped[sender & GROUP ? SOURCE_GROUP : MALFORMED_ETHERNET]++;
			gone |= 1u << i;
			continue;
		}
		if (sender != last) {
			last = src[senders] = sender;
			from[senders++] = home(b, sender);
		}
	}
	if (unlikely(b->bursts++ % LOOK == 0)) {
		uint64_t cycles = rte_rdtsc();
		b->now = cycles / b->per_unit;
		if (cycles >= b->next_sweep) {
			b->next_sweep = cycles + b->per_ms;
			look_through(b);
		}
	}
	for (uint32_t i = 0; i < senders; i++) {
		struct station *s = find(from[i], src[i]);
		if (unlikely(s == NULL)) {
			learn(b, from[i], src[i], port);
			continue;
		}
		if (unlikely(s->port != port))
			s->port = port;
		if (unlikely(s->seen != b->now))
			s->seen = b->now;
	}
	uint64_t before = 0;
	int stays = 0;
	for (uint16_t i = 0; i < n; i++) {
		if (unlikely(gone >> i & 1))
			continue;
		if (dst[i] != before) {
			before = dst[i];
			/* what is for nobody known, or for a group, goes to all ports but its own: of two, the other */
			const struct station *s = dst[i] & GROUP ? NULL : find(to[i], dst[i]);
			stays = unlikely(s != NULL && s->port == port);
		}
		if (unlikely(stays)) {
			c->dropped[SAME_PORT]++;
			gone |= 1u << i;
		}
	}
	return likely(gone == 0) ? n : discard(p, n, gone);
}

/* As forward(), between the two ports of a bridge. */
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
